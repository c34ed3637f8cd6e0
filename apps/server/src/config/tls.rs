//! TLS of the API, and the certificate authorities.

use std::collections::BTreeMap;

use providers::acme::{AccountBinding, AcmeConfig};
use settings::{Error, Settings};

use super::parts::file;
use super::values::Directories;
use super::{ACME_CA, ACME_CONTACT, ACME_DIRECTORIES, ACME_EAB, PUBLIC_URL, TLS_CERTIFICATES, TLS_LISTEN, TlsConfig};

/// Returns the TLS listener.
pub(super) fn tls(settings: &Settings, public_url: &str, issues: bool) -> Result<Option<TlsConfig>, Error> {
    let (listen, files) = match (settings.opt(&TLS_LISTEN)?, settings.opt(&TLS_CERTIFICATES)?) {
        (None, None) => return Ok(None),
        (None, Some(_)) => return Err(TLS_LISTEN.malformed("required with SVC_TLS_CERTIFICATES")),
        (Some(listen), files) => (listen, files),
    };
    if files.is_none() && !issues {
        return Err(TLS_LISTEN.malformed("requires SVC_ACME_DIRECTORIES or SVC_TLS_CERTIFICATES"));
    }
    let url: url::Url = public_url.parse().map_err(|error| PUBLIC_URL.malformed(error))?;
    match (url.scheme(), url.domain()) {
        ("https", Some(hostname)) => Ok(Some(TlsConfig { listen, hostname: hostname.to_owned(), files })),
        _ => Err(TLS_LISTEN.malformed("requires an https SVC_PUBLIC_URL with a hostname")),
    }
}

/// Returns the certificate authorities, in the order of preference.
pub(super) fn acme(settings: &Settings) -> Result<Vec<AcmeConfig>, Error> {
    // Parse every setting even if there is no directory, so that a malformed value is always reported.
    let mut bindings = match settings.opt(&ACME_EAB)? {
        Some(bindings) => account_bindings(bindings.reveal()).map_err(|error| ACME_EAB.malformed(error))?,
        None => BTreeMap::new(),
    };
    let contact = settings.opt(&ACME_CONTACT)?.map(|contact| contact.to_string());
    let ca = file(settings, &ACME_CA)?;
    let Directories(directories) = settings.opt(&ACME_DIRECTORIES)?.unwrap_or(Directories(Vec::new()));
    let authority = |directory: url::Url| {
        let binding = directory.host_str().and_then(|host| bindings.remove(host));
        AcmeConfig { directory, contact: contact.clone(), binding, ca: ca.clone() }
    };
    let authorities = directories.into_iter().map(authority).collect();
    match bindings.into_keys().next() {
        Some(host) => Err(ACME_EAB.malformed(format!("{host} is not the host of a directory"))),
        None => Ok(authorities),
    }
}

/// Parses external account bindings, by the host of the directory.
fn account_bindings(text: &str) -> Result<BTreeMap<String, AccountBinding>, &'static str> {
    let parse = |binding: &str| match *binding.trim().splitn(3, ':').collect::<Vec<_>>().as_slice() {
        [host, key_id, key] if ![host, key_id, key].contains(&"") => {
            let key = kernel::Secret::new(key.to_owned());
            Ok((host.to_owned(), AccountBinding { key_id: key_id.to_owned(), key }))
        }
        _ => Err("must be host:key-id:hmac-key"),
    };
    text.split(',').map(parse).collect()
}

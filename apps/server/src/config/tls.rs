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
    let bindings = match settings.opt(&ACME_EAB)? {
        Some(bindings) => account_bindings(bindings.reveal()).map_err(|error| ACME_EAB.malformed(error))?,
        None => BTreeMap::new(),
    };
    let contact = settings.opt(&ACME_CONTACT)?.map(|contact| contact.to_string());
    let ca = file(settings, &ACME_CA)?;
    ca.as_deref().map_or(Ok(()), providers::check_ca).map_err(|error| ACME_CA.malformed(error))?;
    let Directories(directories) = settings.opt(&ACME_DIRECTORIES)?.unwrap_or(Directories(Vec::new()));
    let is_unused = |host: &&String| directories.iter().all(|directory| directory.host_str() != Some(host.as_str()));
    if let Some(host) = bindings.keys().find(is_unused) {
        return Err(ACME_EAB.malformed(format!("{host} is not the host of a directory")));
    }
    let authority = |directory: url::Url| {
        // Directories of one host share its binding.
        let binding = directory.host_str().and_then(|host| bindings.get(host)).cloned();
        AcmeConfig { directory, contact: contact.clone(), binding, ca: ca.clone() }
    };
    Ok(directories.into_iter().map(authority).collect())
}

/// Parses external account bindings, by the host of the directory.
fn account_bindings(text: &str) -> Result<BTreeMap<String, AccountBinding>, &'static str> {
    let parse = |binding: &str| match *binding.trim().splitn(3, ':').collect::<Vec<_>>().as_slice() {
        [host, key_id, key] if ![host, key_id, key].contains(&"") => {
            let binding =
                AccountBinding::new(key_id.to_owned(), key).ok_or("the HMAC key is empty or not base64url")?;
            Ok((host.to_owned(), binding))
        }
        _ => Err("must be host:key-id:hmac-key"),
    };
    text.split(',').map(parse).collect()
}

#[cfg(test)]
mod tests {
    use settings::Claim;

    use super::*;

    const DIRECTORIES: (&str, &str) =
        ("SVC_ACME_DIRECTORIES", "https://ca.example/rsa,https://ca.example/ecdsa,https://other.example/");

    /// Returns the bindings of the authorities.
    fn bindings(environment: &[(&str, &str)]) -> Result<Vec<Option<AccountBinding>>, String> {
        let table = [ACME_DIRECTORIES.row(), ACME_CONTACT.row(), ACME_EAB.row(), ACME_CA.row()];
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let settings = Settings::read(&table, &Claim { prefixes: &[], except: &[] }, environment);
        let authorities = settings.and_then(|settings| acme(&settings)).map_err(|error| error.to_string())?;
        Ok(authorities.into_iter().map(|authority| authority.binding).collect())
    }

    #[test]
    fn binding_is_that_of_all_directories_of_its_host() {
        let binding = AccountBinding::new("kid".to_owned(), "aHVudGVyMg");
        assert!(binding.is_some());
        let found = bindings(&[DIRECTORIES, ("SVC_ACME_EAB", "ca.example:kid:aHVudGVyMg==")]).expect("bindings");
        assert_eq!(found, [binding.clone(), binding, None]);
    }

    #[test]
    fn malformed_settings_are_reported_by_name() {
        let (not_pem, key) =
            (concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "the HMAC key is empty or not base64url");
        for (name, value, reason) in [
            ("SVC_ACME_EAB", "ca.example:kid:hunter2!", key),
            ("SVC_ACME_EAB", "ca.example:kid:=", key),
            ("SVC_ACME_EAB", "ca.example:kid", "must be host:key-id:hmac-key"),
            ("SVC_ACME_EAB", "unknown.example:kid:aHVudGVyMg", "unknown.example is not the host of a directory"),
            ("SVC_ACME_CA", not_pem, "not a PEM certificate"),
        ] {
            let error = bindings(&[DIRECTORIES, (name, value)]).expect_err(value);
            assert!(error.contains(name) && error.contains(reason) && !error.contains("hunter2"), "{error}");
        }
    }
}

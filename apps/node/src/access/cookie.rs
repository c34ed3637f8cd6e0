//! The access cookie of a signed-in visitor.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use actix_web::cookie::Cookie;
use daemon::if_exists;
use protocol::SiteAccess;
use ring::hmac;
use sha256::{hex, unhex};

use crate::clock::since_epoch;
use crate::host_cookie::host_cookie;
use crate::random;

/// The cookie's name. The node removes the cookie from requests to worker code.
pub const COOKIE_NAME: &str = "__svc_access";

const LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// The scope of a cookie: one host of one project, until the access policy changes.
#[derive(Clone, Copy)]
pub struct CookieScope<'a> {
    pub host: &'a str,
    pub project: &'a str,
    pub access: &'a SiteAccess,
}

/// The key that signs cookies. It is stored in the node's directory, so cookies remain valid after a restart.
pub struct Keys(hmac::Key);

impl Keys {
    /// Reads the key, or creates it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let key = match if_exists(fs::read(path))? {
            Some(key) if key.len() == 32 => key,
            _ => create_key(path)?.to_vec(),
        };
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &key)))
    }

    /// Issues a cookie for this scope.
    pub fn issue(&self, scope: CookieScope<'_>, https: bool) -> Cookie<'static> {
        let expires_at = (since_epoch() + LIFETIME).as_secs();
        let tag = hmac::sign(&self.0, signed_text(scope, expires_at).as_bytes());
        host_cookie(COOKIE_NAME.to_owned(), format!("{expires_at}.{}", hex(tag.as_ref())), LIFETIME, https)
    }

    /// Returns whether the cookie is valid for this scope.
    pub fn verify(&self, scope: CookieScope<'_>, cookie: &[u8]) -> bool {
        let cookie = str::from_utf8(cookie).ok().and_then(|cookie| cookie.split_once('.'));
        let Some((expires_at, tag)) = cookie else { return false };
        let (Ok(expires_at), Some(tag)) = (expires_at.parse(), unhex(tag)) else { return false };
        expires_at > since_epoch().as_secs()
            && hmac::verify(&self.0, signed_text(scope, expires_at).as_bytes(), &tag).is_ok()
    }
}

/// Returns the signed text. No part can contain a line break, so different scopes have different texts.
fn signed_text(CookieScope { host, project, access }: CookieScope<'_>, expires_at: u64) -> String {
    format!("access\n{host}\n{project}\n{}\n{}\n{expires_at}", access.mode.as_str(), access.version)
}

fn create_key(path: &Path) -> io::Result<[u8; 32]> {
    let key = random::bytes()?;
    let temporary = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(&key)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use protocol::AccessMode;

    use super::*;

    #[test]
    fn cookie_is_valid_only_for_its_scope_and_policy() {
        let folder = std::env::temp_dir().join(format!("svc-cookie-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let keys = Keys::open(&folder.join("key")).unwrap();
        let access = |mode, version| SiteAccess { mode, password: None, bypass: None, version };
        let (org, changed) = (access(AccessMode::Org, 1), access(AccessMode::Org, 2));
        let password = access(AccessMode::Password, 1);
        let scope = CookieScope { host: "a.example", project: "prj_1", access: &org };
        let cookie = keys.issue(scope, true);
        let value = cookie.value();
        let bytes = value.as_bytes();
        assert!(keys.verify(scope, bytes) && Keys::open(&folder.join("key")).unwrap().verify(scope, bytes));
        for other in [
            CookieScope { host: "b.example", ..scope },
            CookieScope { project: "prj_2", ..scope },
            CookieScope { access: &changed, ..scope },
            CookieScope { access: &password, ..scope },
        ] {
            assert!(!keys.verify(other, bytes));
        }
        let (expires_at, tag) = value.split_once('.').unwrap();
        let later = expires_at.parse::<u64>().unwrap() + 1;
        for forged in [
            "",
            ".",
            "1.",
            expires_at,
            &format!("{later}.{tag}"),
            &format!("1.{tag}"),
            &format!("{expires_at}.{}", "0".repeat(64)),
        ] {
            assert!(!keys.verify(scope, forged.as_bytes()), "{forged}");
        }
        assert!(!keys.verify(scope, b"\xff.\xff"));
        assert!(!Keys::open(&folder.join("other")).unwrap().verify(scope, bytes));
        fs::remove_dir_all(folder).unwrap();
    }
}

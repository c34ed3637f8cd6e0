//! The cookie of who was let in.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use actix_web::cookie::{Cookie, SameSite};
use protocol::SiteAccess;
use ring::hmac;

use crate::clock::since_epoch;
use crate::hex::{hex, unhex};
use crate::random;

/// Its name. Worker code never sees it.
pub const COOKIE: &str = "__svc_access";

const LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// Where a pass lets in: one host of one project, as long as the policy there is the one it was let in under.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    pub host: &'a str,
    pub project: &'a str,
    pub access: &'a SiteAccess,
}

/// What passes are signed with: the node's own key, kept in its directory so that a restart lets nobody in anew.
pub struct Keys(hmac::Key);

impl Keys {
    /// Reads the key, or makes it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let key = match fs::read(path) {
            Ok(key) if key.len() == 32 => key,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => make(path)?.to_vec(),
        };
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &key)))
    }

    /// The cookie that lets in there from now on.
    pub fn grant(&self, pass: Pass<'_>, https: bool) -> Cookie<'static> {
        let ends = (since_epoch() + LIFETIME).as_secs();
        let tag = hmac::sign(&self.0, said(pass, ends).as_bytes());
        let cookie =
            Cookie::build(COOKIE, format!("{ends}.{}", hex(tag.as_ref()))).path("/").http_only(true).secure(https);
        let age = i64::try_from(LIFETIME.as_secs()).unwrap_or(i64::MAX);
        cookie.same_site(SameSite::Lax).max_age(actix_web::cookie::time::Duration::seconds(age)).finish()
    }

    /// Whether the cookie lets in there now.
    pub fn admits(&self, pass: Pass<'_>, cookie: &str) -> bool {
        let Some((ends, tag)) = cookie.split_once('.') else { return false };
        let (Ok(ends), Some(tag)) = (ends.parse(), unhex(tag)) else { return false };
        ends > since_epoch().as_secs() && hmac::verify(&self.0, said(pass, ends).as_bytes(), &tag).is_ok()
    }
}

/// What is signed. No part can hold a line break, so no two passes say the same.
fn said(Pass { host, project, access }: Pass<'_>, ends: u64) -> String {
    format!("access\n{host}\n{project}\n{}\n{}\n{ends}", access.mode.as_str(), access.version)
}

fn make(path: &Path) -> io::Result<[u8; 32]> {
    let key = random::key()?;
    let unfinished = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(&key)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use protocol::AccessMode;

    use super::*;

    #[test]
    fn a_pass_opens_its_own_place_under_its_own_policy() {
        let folder = std::env::temp_dir().join(format!("svc-pass-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let keys = Keys::open(&folder.join("key")).unwrap();
        let access = |mode, version| SiteAccess { mode, password: None, bypass: None, version };
        let (org, changed) = (access(AccessMode::Org, 1), access(AccessMode::Org, 2));
        let password = access(AccessMode::Password, 1);
        let pass = Pass { host: "a.example", project: "prj_1", access: &org };
        let cookie = keys.grant(pass, true);
        let value = cookie.value();
        assert!(keys.admits(pass, value) && Keys::open(&folder.join("key")).unwrap().admits(pass, value));
        for other in [
            Pass { host: "b.example", ..pass },
            Pass { project: "prj_2", ..pass },
            Pass { access: &changed, ..pass },
            Pass { access: &password, ..pass },
        ] {
            assert!(!keys.admits(other, value));
        }
        let (ends, tag) = value.split_once('.').unwrap();
        let later = ends.parse::<u64>().unwrap() + 1;
        for forged in
            ["", ".", "1.", ends, &format!("{later}.{tag}"), &format!("1.{tag}"), &format!("{ends}.{}", "0".repeat(64))]
        {
            assert!(!keys.admits(pass, forged), "{forged}");
        }
        assert!(!Keys::open(&folder.join("other")).unwrap().admits(pass, value));
        fs::remove_dir_all(folder).unwrap();
    }
}

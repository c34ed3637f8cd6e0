//! The credentials of HTTP Basic, read in the same way by the gateway and the git node.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Returns the password in the credentials of the scheme `Basic` (RFC 7617). The user name may have any encoding.
#[must_use]
pub fn basic_password(credentials: &str) -> Option<String> {
    let decoded = STANDARD.decode(credentials.trim()).ok()?;
    let password = decoded.splitn(2, |byte| *byte == b':').nth(1)?;
    String::from_utf8(password.to_owned()).ok()
}

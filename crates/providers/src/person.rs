//! The user profile of a code host.
//!
//! The profile is untrusted. It must have a valid id and a valid login. Other invalid fields are dropped.

use kernel::{Email, is_name};
use serde_json::{Map, Value};
use url::{Host, Url};

const MAX_NAME_CHARS: usize = 100;
const MAX_AVATAR_URL_BYTES: usize = 2048;

/// A user of a code host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The permanent id: 1 to 64 of `A-Z a-z 0-9 _ -`. Unlike a login, it is never reassigned.
    pub subject: String,
    /// The login name: 1 to 100 of `A-Z a-z 0-9 . _ -`.
    pub login: String,
    /// The display name: at most 100 characters, one of them visible, without control characters. Defaults to the login.
    pub name: String,
    /// The public mail address. It is not verified.
    pub email: Option<String>,
    /// The address of the picture: an `https` URL, or an `http` URL of a loopback host, of at most 2,048 bytes.
    pub avatar_url: Option<String>,
}

impl Person {
    /// Parses the response of a user endpoint. Returns the name of a required field that is invalid.
    pub(crate) fn parse(user: &Map<String, Value>) -> Result<Self, &'static str> {
        let text = |key| user.get(key).and_then(Value::as_str);
        let subject = match user.get("id") {
            Some(Value::Number(id)) => id.as_u64().map(|id| id.to_string()),
            Some(Value::String(id)) => restricted_to(id, "_-", 64),
            _ => None,
        };
        let subject = subject.ok_or("id")?;
        let login = text("login").and_then(|login| restricted_to(login, "._-", 100)).ok_or("login")?;
        let name = text("name").and_then(name).unwrap_or_else(|| login.clone());
        let (email, avatar_url) = (text("email").and_then(email), text("avatar_url").and_then(avatar));
        Ok(Self { subject, login, name, email, avatar_url })
    }
}

/// Returns the text if it consists of ASCII letters, digits and `others`.
fn restricted_to(text: &str, others: &str, max: usize) -> Option<String> {
    let fits = (1..=max).contains(&text.len());
    (fits && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))).then(|| text.to_owned())
}

fn name(text: &str) -> Option<String> {
    let cleaned: String = text.chars().filter(|c| !c.is_control() && !is_bidi_control(*c)).collect();
    let truncated: String = cleaned.trim().chars().take(MAX_NAME_CHARS).collect();
    let truncated = truncated.trim_end();
    is_name(truncated).then(|| truncated.to_owned())
}

/// Returns whether a character is an explicit directional control (UAX 9 section 2), which reorders the adjacent text.
const fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn email(text: &str) -> Option<String> {
    let (local, domain) = text.split_once('@')?;
    let is_plausible = text.len() <= Email::MAX_LENGTH
        && !local.is_empty()
        && !domain.is_empty()
        && !domain.contains('@')
        && !text.contains(|c: char| c.is_control() || c.is_whitespace());
    is_plausible.then(|| text.to_owned())
}

fn avatar(text: &str) -> Option<String> {
    if text.len() > MAX_AVATAR_URL_BYTES {
        return None;
    }
    let url = Url::parse(text).ok()?;
    let is_allowed = match url.scheme() {
        "https" => true,
        "http" => is_loopback(&url.host()?),
        _ => false,
    };
    let is_plain = url.username().is_empty() && url.password().is_none() && url.as_str().len() <= MAX_AVATAR_URL_BYTES;
    (is_allowed && is_plain).then(|| url.into())
}

pub(crate) fn is_loopback<S: AsRef<str>>(host: &Host<S>) -> bool {
    match host {
        Host::Domain(name) => name.as_ref() == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn person(user: Value) -> Result<Person, &'static str> {
        Person::parse(user.as_object().unwrap())
    }

    #[test]
    fn id_and_login_are_required() {
        for (id, subject) in [(json!(1), "1"), (json!(u64::MAX), "18446744073709551615"), (json!("a_B-9"), "a_B-9")] {
            assert_eq!(person(json!({ "id": id, "login": "ada" })).unwrap().subject, subject);
        }
        let long = "a".repeat(65);
        for id in [json!(null), json!(-1), json!(1.5), json!(""), json!("a b"), json!("é"), json!([1]), json!(long)] {
            assert_eq!(person(json!({ "id": id, "login": "ada" })), Err("id"));
        }
        let long = "a".repeat(101);
        for login in [json!(null), json!(""), json!(7), json!("a/b"), json!("ada\n"), json!("<ada>"), json!(long)] {
            assert_eq!(person(json!({ "id": 1, "login": login })), Err("login"));
        }
    }

    #[test]
    fn name_is_cleaned_and_truncated() {
        let name = |name: Value| person(json!({ "id": 1, "login": "ada", "name": name })).unwrap().name;
        assert_eq!(name(json!("  Ada\r\n Lovelace\u{0}\u{85} ")), "Ada Lovelace");
        assert_eq!(name(json!("a\u{202e}b")), "ab");
        assert_eq!(name(json!("ü".repeat(101))), "ü".repeat(100));
        for none in [json!(null), json!(" \t "), json!("\u{200b}"), json!("\u{3164}\u{202e}"), json!(5), json!({})] {
            assert_eq!(name(none), "ada");
        }
    }

    #[test]
    fn implausible_address_is_dropped() {
        let email = |email: &str| person(json!({ "id": 1, "login": "ada", "email": email })).unwrap().email;
        for good in ["ada@a.example", "a+b@müller.example"] {
            assert_eq!(email(good).as_deref(), Some(good));
        }
        let long = format!("{}@a.example", "a".repeat(250));
        for odd in ["", "ada", "@a.example", "ada@", "a@b@c", "a b@c", "a@b\r\nBcc: c", &long] {
            assert_eq!(email(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn picture_must_be_https_or_loopback() {
        let avatar = |url: &str| person(json!({ "id": 1, "login": "ada", "avatar_url": url })).unwrap().avatar_url;
        for good in ["https://a.example/u/1?v=4", "http://127.0.0.1:99/a", "http://localhost/a", "http://[::1]/a"] {
            assert_eq!(avatar(good).as_deref(), Some(good));
        }
        let long = format!("https://a.example/{}", "a".repeat(2048));
        for odd in ["", "/a", "http://a.example/", "javascript:alert(1)", "data:,", "https://u:p@a.example/", &long] {
            assert_eq!(avatar(odd), None, "{odd:?}");
        }
    }
}

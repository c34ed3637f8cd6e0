//! Who signed in, as far as a code host is believed.
//!
//! Everything it says is untrusted. Without an id and a login in their expected form there is no person; the rest is
//! decoration, and is left out when it is odd.

use serde_json::{Map, Value};
use url::{Host, Url};

const NAME_MAX_CHARS: usize = 100;
/// RFC 5321 section 4.5.3.1.3, less the angle brackets.
const EMAIL_MAX_BYTES: usize = 254;
const AVATAR_MAX_BYTES: usize = 2048;

/// A user of a code host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// What names them for good: 1 to 64 of `A-Z a-z 0-9 _ -`. Logins change hands, this does not.
    pub subject: String,
    /// Their handle: 1 to 100 of `A-Z a-z 0-9 . _ -`.
    pub login: String,
    /// Their name for display, at most 100 characters without control characters; the login when they gave none.
    pub name: String,
    /// Their address, when they show one. The code host's claim, unverified by us.
    pub email: Option<String>,
    /// Their picture: an `https` address of at most 2,048 bytes, or `http` on this machine.
    pub avatar_url: Option<String>,
}

impl Person {
    /// The person of a user endpoint's answer, or what is wrong with it.
    pub(crate) fn of(user: &Map<String, Value>) -> Result<Self, &'static str> {
        let text = |key| user.get(key).and_then(Value::as_str);
        let subject = match user.get("id") {
            Some(Value::Number(id)) => id.as_u64().map(|id| id.to_string()),
            Some(Value::String(id)) => made_of(id, "_-", 64),
            _ => None,
        };
        let subject = subject.ok_or("the user's id")?;
        let login = text("login").and_then(|login| made_of(login, "._-", 100)).ok_or("the user's login")?;
        let name = text("name").and_then(name).unwrap_or_else(|| login.clone());
        let (email, avatar_url) = (text("email").and_then(email), text("avatar_url").and_then(avatar));
        Ok(Self { subject, login, name, email, avatar_url })
    }
}

/// The text, when it is letters and digits of ASCII and `others` alone.
fn made_of(text: &str, others: &str, max: usize) -> Option<String> {
    let fits = (1..=max).contains(&text.len());
    (fits && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))).then(|| text.to_owned())
}

fn name(text: &str) -> Option<String> {
    let shown: String = text.chars().filter(|c| !c.is_control() && !turns_text_around(*c)).collect();
    let cut: String = shown.trim().chars().take(NAME_MAX_CHARS).collect();
    let cut = cut.trim_end();
    (!cut.is_empty()).then(|| cut.to_owned())
}

/// Unicode's explicit directional formatting (UAX 9 section 2): it would reorder what stands beside the name.
const fn turns_text_around(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn email(text: &str) -> Option<String> {
    let (local, domain) = text.split_once('@')?;
    let plausible = text.len() <= EMAIL_MAX_BYTES
        && !local.is_empty()
        && !domain.is_empty()
        && !domain.contains('@')
        && !text.contains(|c: char| c.is_control() || c.is_whitespace());
    plausible.then(|| text.to_owned())
}

fn avatar(text: &str) -> Option<String> {
    if text.len() > AVATAR_MAX_BYTES {
        return None;
    }
    let url = Url::parse(text).ok()?;
    let fetched = match url.scheme() {
        "https" => true,
        "http" => is_loopback(&url.host()?),
        _ => false,
    };
    let plain = url.username().is_empty() && url.password().is_none() && url.as_str().len() <= AVATAR_MAX_BYTES;
    (fetched && plain).then(|| url.into())
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
        Person::of(user.as_object().unwrap())
    }

    #[test]
    fn an_id_and_a_login_are_needed() {
        for (id, subject) in [(json!(1), "1"), (json!(u64::MAX), "18446744073709551615"), (json!("a_B-9"), "a_B-9")] {
            assert_eq!(person(json!({ "id": id, "login": "ada" })).unwrap().subject, subject);
        }
        let long = "a".repeat(65);
        for id in [json!(null), json!(-1), json!(1.5), json!(""), json!("a b"), json!("é"), json!([1]), json!(long)] {
            assert_eq!(person(json!({ "id": id, "login": "ada" })), Err("the user's id"));
        }
        let long = "a".repeat(101);
        for login in [json!(null), json!(""), json!(7), json!("a/b"), json!("ada\n"), json!("<ada>"), json!(long)] {
            assert_eq!(person(json!({ "id": 1, "login": login })), Err("the user's login"));
        }
    }

    #[test]
    fn a_name_is_cleaned_and_cut() {
        let name = |name: Value| person(json!({ "id": 1, "login": "ada", "name": name })).unwrap().name;
        assert_eq!(name(json!("  Ada\r\n Lovelace\u{0}\u{85} ")), "Ada Lovelace");
        assert_eq!(name(json!("a\u{202e}b")), "ab");
        assert_eq!(name(json!("ü".repeat(101))), "ü".repeat(100));
        for none in [json!(null), json!(" \t "), json!(5), json!({})] {
            assert_eq!(name(none), "ada");
        }
    }

    #[test]
    fn an_address_is_kept_when_plausible() {
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
    fn a_picture_is_https_or_on_this_machine() {
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

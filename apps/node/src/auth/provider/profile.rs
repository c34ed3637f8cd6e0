//! The profile that a provider states.

use reqwest::Url;
use serde_json::Value;

/// The limits of texts. OpenID Connect Core limits a subject to 255 characters, RFC 5321 a path to 256.
const MAX_SUBJECT: usize = 255;
const MAX_EMAIL: usize = 254;
const MAX_NAME: usize = 200;
const MAX_URL: usize = 2048;

/// The profile of a person at a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The provider's id of the account. It never changes, unlike the login and the address.
    pub subject: String,
    pub name: Option<String>,
    /// The address. `None` if an OpenID provider does not call it verified.
    pub email: Option<String>,
    /// The same address if an OpenID provider calls it verified, with its domain in lower case.
    pub verified_email: Option<String>,
    /// An http or https URL.
    pub avatar_url: Option<String>,
}

impl Profile {
    /// Reads GitHub's user: `{ id, login, name, email, avatar_url }`. Returns `None` without an id. Its address is never
    /// called verified.
    pub fn of_code_host(user: &Value) -> Option<Self> {
        let subject = match user.get("id")? {
            Value::Number(id) => id.to_string(),
            Value::String(id) => id.clone(),
            _ => return None,
        };
        let name = text(user, "name", MAX_NAME).or_else(|| text(user, "login", MAX_NAME));
        let (email, avatar_url) = (email(user), url(user, "avatar_url"));
        Some(Self { subject: check_subject(subject)?, name, email, verified_email: None, avatar_url })
    }

    /// Reads the claims of a userinfo endpoint: `{ sub, name, email, email_verified, picture }`. Returns `None` without
    /// a subject.
    pub fn of_openid(user: &Value) -> Option<Self> {
        let subject = user.get("sub")?.as_str()?.to_owned();
        // Some providers write a string.
        let is_verified = user.get("email_verified").is_some_and(|it| it == &Value::Bool(true) || it == "true");
        let email = email(user).filter(|_| is_verified);
        let verified_email = email.as_deref().and_then(normalize);
        let (name, avatar_url) = (text(user, "name", MAX_NAME), url(user, "picture"));
        Some(Self { subject: check_subject(subject)?, name, email, verified_email, avatar_url })
    }
}

fn check_subject(subject: String) -> Option<String> {
    let is_valid = !subject.is_empty() && subject.len() <= MAX_SUBJECT && !subject.contains(char::is_control);
    is_valid.then_some(subject)
}

/// Returns a text without control characters, shortened to `max` characters.
fn text(user: &Value, name: &str, max: usize) -> Option<String> {
    let text = user.get(name)?.as_str()?.chars().filter(|character| !character.is_control());
    let text: String = text.take(max).collect();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn email(user: &Value) -> Option<String> {
    let email = user.get("email")?.as_str()?;
    let is_email = email.len() <= MAX_EMAIL
        && email.split_once('@').is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty())
        && !email.contains(|character: char| character.is_control() || character.is_whitespace());
    is_email.then(|| email.to_owned())
}

fn url(user: &Value, name: &str) -> Option<String> {
    let url = user.get(name)?.as_str().filter(|url| url.len() <= MAX_URL)?;
    let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    Some(url.into())
}

/// Writes the domain in lower case. Only the host of an address knows whether the case of its local part matters.
fn normalize(email: &str) -> Option<String> {
    let (local, domain) = email.rsplit_once('@')?;
    Some(format!("{local}@{}", domain.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn code_host_identifies_a_person_by_id_and_verifies_no_address() {
        let user = json!({ "id": 583_231, "login": "octo", "name": null, "email": "o@example.com", "avatar_url": "https://a.example/1",
            "email_verified": true, "sub": "x" });
        let profile = Profile::of_code_host(&user).unwrap();
        assert_eq!((profile.subject.as_str(), profile.name.as_deref()), ("583231", Some("octo")));
        assert_eq!((profile.email.as_deref(), profile.verified_email), (Some("o@example.com"), None));
        for user in [json!({}), json!({ "id": null }), json!({ "login": "octo" }), json!({ "id": "" }), json!([1])] {
            assert_eq!(Profile::of_code_host(&user), None, "{user}");
        }
    }

    #[test]
    fn address_is_verified_only_if_the_provider_says_so() {
        let verified = |email: Value, is_verified: Value| {
            let user = json!({ "sub": "1", "email": email, "email_verified": is_verified });
            let Profile { email, verified_email, .. } = Profile::of_openid(&user).unwrap();
            assert_eq!(email.is_some(), verified_email.is_some(), "an unverified address is not shown");
            verified_email
        };
        assert_eq!(verified("Ada@Example.COM".into(), true.into()).as_deref(), Some("Ada@example.com"));
        assert_eq!(verified("ada@example.com".into(), "true".into()).as_deref(), Some("ada@example.com"));
        for is_verified in [json!(false), json!(null), json!("false"), json!(1), json!("TRUE")] {
            assert_eq!(verified("ada@example.com".into(), is_verified), None);
        }
        for email in ["ada", "@example.com", "ada@", "a b@example.com", "a\n@example.com"] {
            assert_eq!(verified(email.into(), true.into()), None, "{email}");
        }
        assert_eq!(Profile::of_openid(&json!({ "sub": 1 })), None);
    }

    #[test]
    fn texts_of_a_provider_are_bounded() {
        let user = json!({ "sub": "1", "name": "\u{0}\u{7} ".to_owned() + &"x".repeat(500), "picture": "javascript:alert(1)" });
        let profile = Profile::of_openid(&user).unwrap();
        assert_eq!((profile.name.unwrap().len(), profile.avatar_url), (MAX_NAME - 1, None));
    }
}

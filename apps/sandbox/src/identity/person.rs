//! The people who have accounts.

use serde_json::{Map, Value, json};

use super::IdentityProvider;

/// An account of a person at a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The value that selects the account on the sign-in page.
    pub key: String,
    /// The id, which never changes. At the code host, it is a number.
    pub subject: String,
    /// The login, which its owner can change. Only the code host shows it.
    pub login: String,
    pub name: Option<String>,
    pub email: Option<String>,
    /// Whether the provider verified the address. The code host does not report this.
    pub is_email_verified: bool,
}

impl Person {
    /// Returns an account without a name and an address. The login is the key.
    #[must_use]
    pub fn new(key: &str, subject: &str) -> Self {
        let (key, subject) = (key.to_owned(), subject.to_owned());
        Self { login: key.clone(), key, subject, name: None, email: None, is_email_verified: false }
    }

    /// Sets the name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// Sets an address that the provider verified.
    #[must_use]
    pub fn verified(self, email: &str) -> Self {
        Self { is_email_verified: true, ..self.unverified(email) }
    }

    /// Sets an address that the provider did not verify.
    #[must_use]
    pub fn unverified(self, email: &str) -> Self {
        Self { email: Some(email.to_owned()), is_email_verified: false, ..self }
    }

    fn login(self, login: &str) -> Self {
        Self { login: login.to_owned(), ..self }
    }

    /// Returns the response of the user endpoint.
    pub(super) fn to_json(&self, provider: IdentityProvider) -> Value {
        let id = &self.subject;
        if !provider.is_openid() {
            let avatar_url = format!("https://avatars.code.example/u/{id}?v=4");
            let id = id.parse::<u64>().map_or_else(|_| Value::from(id.as_str()), Value::from);
            return json!({
                "id": id, "login": self.login, "name": self.name, "email": self.email, "avatar_url": avatar_url,
                "type": "User", "site_admin": false,
            });
        }
        // OpenID Connect Core, section 5.3.2: a claim that is not returned is omitted.
        let mut claims = Map::from_iter([("sub".to_owned(), id.as_str().into())]);
        if let Some(name) = &self.name {
            claims.insert("name".to_owned(), name.as_str().into());
            claims.insert("picture".to_owned(), format!("https://pictures.{}.example/{id}", provider.as_str()).into());
        }
        if let Some(email) = &self.email {
            claims.insert("email".to_owned(), email.as_str().into());
            claims.insert("email_verified".to_owned(), self.is_email_verified.into());
        }
        claims.into()
    }

    /// Returns the properties that matter for a sign-in, for a page.
    pub(super) fn describe(&self, provider: IdentityProvider) -> String {
        let name = self.name.as_deref().unwrap_or("no name");
        let email = self.email.as_deref().unwrap_or("no address");
        let status = match (&self.email, self.is_email_verified) {
            _ if !provider.is_openid() => format!(" (login {}, id {})", self.login, self.subject),
            (None, _) => String::new(),
            (Some(_), true) => " (verified)".to_owned(),
            (Some(_), false) => " (not verified)".to_owned(),
        };
        format!("{name}, {email}{status}")
    }
}

/// Returns the people who have an account at a provider. Their accounts show what identifies a person: the id, and an
/// address only if an OpenID provider verified it.
pub(super) fn people(provider: IdentityProvider) -> Vec<Person> {
    let person = |key, subject, name| Person::new(key, subject).named(name);
    match provider {
        IdentityProvider::CodeHost => vec![
            person("ada", "1815", "Ada Lovelace").unverified("ada@mail.example"),
            person("grace", "1906", "Grace Hopper").unverified("grace@mail.example"),
            person("grace-renamed", "1906", "Grace Hopper").login("amazing-grace").unverified("grace@mail.example"),
            person("grace-reused", "2006", "Another Grace").login("grace").unverified("another-grace@mail.example"),
            Person::new("nameless", "404"),
        ],
        IdentityProvider::WebAccount => vec![
            person("ada", "118150000000000000001", "Ada Lovelace").verified("ada@mail.example"),
            person("grace", "119060000000000000002", "Grace Hopper").verified("grace@mail.example"),
            person("mallory", "110000000000000000666", "Mallory").unverified("ada@mail.example"),
            Person::new("nameless", "110000000000000000404"),
        ],
        IdentityProvider::Messenger => vec![
            person("ada", "U1815", "Ada").verified("ada@mail.example"),
            person("grace", "U1906", "Grace").verified("grace@MAIL.example"),
            person("mallory", "U0666", "Mallory").unverified("ada@mail.example"),
            Person::new("nameless", "U0404"),
        ],
    }
}

//! The users of the code host.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::values::stable_id;

/// Users by login, as the user endpoint returns them.
#[derive(Debug)]
pub(super) struct Users(BTreeMap<String, Value>);

impl Default for Users {
    fn default() -> Self {
        let mut users = Self(BTreeMap::new());
        for (login, id, name) in [("ada", 1815, "Ada Lovelace"), ("grace", 1906, "Grace Hopper")] {
            users.0.insert(login.to_owned(), user(login, id, name, &format!("{login}@code.example")));
        }
        users
    }
}

impl Users {
    pub fn first(&self) -> Value {
        self.0.values().next().cloned().unwrap_or_default()
    }

    pub fn all(&self) -> Vec<Value> {
        self.0.values().cloned().collect()
    }

    /// Returns the user with this login, or creates it. A name or an email address that is not empty replaces the
    /// earlier one.
    pub fn sign_in(&mut self, login: &str, name: &str, email: &str) -> Result<Value, &'static str> {
        if !is_login(login) {
            return Err("A login has 1 to 39 letters, digits, hyphens, underscores and dots.");
        }
        let login = login.to_ascii_lowercase();
        let user = self.0.entry(login.clone()).or_insert_with(|| user(&login, stable_id(&login), "", ""));
        for (field, value) in [("name", name.trim()), ("email", email.trim())] {
            if !value.is_empty() {
                user[field] = value.into();
            }
        }
        Ok(user.clone())
    }
}

/// Returns whether a text can be a login.
fn is_login(login: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=39).contains(&login.len()) && login.bytes().all(valid)
}

fn user(login: &str, id: u32, name: &str, email: &str) -> Value {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "login": login, "id": id, "name": text(name), "email": text(email),
        "avatar_url": format!("https://avatars.code.example/u/{id}?v=4"), "type": "User", "site_admin": false,
    })
}

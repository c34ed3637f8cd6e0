//! The state of browsers. A cookie identifies each browser.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::header::COOKIE;

use crate::http::Request;

/// A value for each browser.
#[derive(Debug)]
pub(crate) struct Sessions<T> {
    cookie: &'static str,
    values: Mutex<HashMap<String, T>>,
}

impl<T: Clone> Sessions<T> {
    pub fn new(cookie: &'static str) -> Self {
        Self { cookie, values: Mutex::default() }
    }

    /// Returns the value of the request's browser.
    pub fn get(&self, request: &Request) -> Option<T> {
        let id = self.id(request)?;
        self.values().get(&id).cloned()
    }

    /// Stores a value under a new id, and returns the cookie. Browsers do not send this cookie with forms of other
    /// sites.
    pub fn insert(&self, value: T) -> String {
        let id = random_text();
        let cookie = format!("{}={id}; Path=/; HttpOnly; SameSite=Lax", self.cookie);
        self.values().insert(id, value);
        cookie
    }

    /// Removes and returns the value of the request's browser.
    pub fn remove(&self, request: &Request) -> Option<T> {
        let id = self.id(request)?;
        self.values().remove(&id)
    }

    fn id(&self, request: &Request) -> Option<String> {
        let cookies = request.header(COOKIE).split(';').filter_map(|cookie| cookie.trim().split_once('='));
        cookies.into_iter().find(|(name, _)| *name == self.cookie).map(|(_, id)| id.to_owned())
    }

    fn values(&self) -> MutexGuard<'_, HashMap<String, T>> {
        self.values.lock().unwrap()
    }
}

/// Returns 256 random bits in base64url.
pub(crate) fn random_text() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).unwrap();
    URL_SAFE_NO_PAD.encode(bytes)
}

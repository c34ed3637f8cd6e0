//! A browser: it keeps cookies, and signs in at the providers of the sandbox.

use std::collections::BTreeMap;

use reqwest::Method;
use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use sandbox::IdentityProvider;
use serde_json::Value;

use crate::visitor::{Visitor, VisitorResponse, client_builder};

pub struct Browser {
    visitor: Visitor,
    host: String,
    pub cookies: BTreeMap<String, String>,
    /// The attributes of all cookies that were set.
    pub set_cookies: Vec<String>,
}

impl Browser {
    pub fn new(visitor: Visitor, host: &str) -> Self {
        Self { visitor, host: host.to_owned(), cookies: BTreeMap::new(), set_cookies: Vec::new() }
    }

    pub async fn get(&mut self, path: &str) -> VisitorResponse {
        self.send(Method::GET, path, &[]).await
    }

    pub async fn send(&mut self, method: Method, path: &str, headers: &[(&str, &str)]) -> VisitorResponse {
        let mut request = self.visitor.request(method, &self.host, path);
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if !cookies.is_empty() {
            request = request.header(COOKIE, cookies.join("; "));
        }
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let response = Visitor::send(request).await;
        for cookie in response.headers.get_all(SET_COOKIE) {
            let cookie = cookie.to_str().unwrap();
            self.set_cookies.push(cookie.to_owned());
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            match cookie.contains("Max-Age=0") {
                true => drop(self.cookies.remove(name)),
                false => drop(self.cookies.insert(name.to_owned(), value.to_owned())),
            }
        }
        response
    }

    /// Begins a sign-in. Returns the address of the provider.
    pub async fn begin(&mut self, provider: IdentityProvider, next: &str) -> String {
        let query = serde_urlencoded::to_string([("next", next)]).unwrap();
        let begun = self.get(&format!("/__svc/auth/login/{}?{query}", provider.as_str())).await;
        assert_eq!(begun.status, 303, "{}", begun.body);
        begun.header(LOCATION.as_str()).to_owned()
    }

    /// Signs in at the provider. Returns the path to which the provider redirects.
    pub async fn choose(&self, address: &str, person: &str) -> String {
        let client = client_builder().build().unwrap();
        let form = serde_urlencoded::to_string([("person", person)]).unwrap();
        let request = client.post(address).header("content-type", "application/x-www-form-urlencoded").body(form);
        let response = request.send().await.unwrap();
        let location = response.headers().get(LOCATION).map(|location| location.to_str().unwrap().to_owned());
        assert!(location.is_some(), "{}", response.text().await.unwrap());
        let location: reqwest::Url = location.unwrap().parse().unwrap();
        assert_eq!(location.host_str(), Some(self.host.as_str()));
        format!("{}?{}", location.path(), location.query().unwrap())
    }

    /// Signs in a person. Returns the last response, normally a redirect to `next`.
    pub async fn sign_in(&mut self, provider: IdentityProvider, person: &str, next: &str) -> VisitorResponse {
        let address = self.begin(provider, next).await;
        let path = self.choose(&address, person).await;
        self.get(&path).await
    }

    /// Returns the current user; null if the browser is not signed in.
    pub async fn user(&mut self) -> Value {
        let response = self.get("/__svc/auth/session").await;
        assert_eq!((response.status, response.header("cache-control")), (200, "no-store"), "{}", response.body);
        serde_json::from_str::<Value>(&response.body).unwrap()["user"].clone()
    }

    pub async fn log_out(&mut self) -> VisitorResponse {
        self.send(Method::POST, "/__svc/auth/logout", &[]).await
    }

    /// Returns the name and value of the session cookie.
    pub fn session(&self) -> Option<(&String, &String)> {
        self.cookies.iter().find(|(name, _)| name.ends_with("svc_auth"))
    }
}

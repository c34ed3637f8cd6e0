//! A visitor with a browser that stores cookies.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use reqwest::{Client, Method, Response};
use serde_json::Value;
use url::Url;
use url::form_urlencoded::Serializer;

use crate::support::client;

/// The cookie of a session behind https.
pub const SESSION_COOKIE: &str = "__Host-svc_auth";

/// A visitor of one origin, whose requests a proxy forwards to the node.
pub struct Visitor {
    client: Client,
    edge: String,
    pub origin: String,
    address: String,
    cookies: Mutex<BTreeMap<String, String>>,
}

impl Visitor {
    pub fn new(edge: &str, origin: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let [_, a, b, c] = COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let (edge, origin) = (edge.to_owned(), origin.to_owned());
        Self { client: client(), edge, origin, address: format!("10.{a}.{b}.{c}"), cookies: Mutex::default() }
    }

    /// Returns another browser with the same cookies.
    pub fn copy(&self) -> Self {
        let copy = Self::new(&self.edge, &self.origin);
        *copy.cookies.lock().unwrap() = self.cookies();
        copy
    }

    pub fn cookies(&self) -> BTreeMap<String, String> {
        self.cookies.lock().unwrap().clone()
    }

    pub fn set_cookie(&self, name: &str, value: &str) {
        self.cookies.lock().unwrap().insert(name.to_owned(), value.to_owned());
    }

    /// Returns the value of the session cookie.
    pub fn session_cookie(&self) -> Option<String> {
        self.cookies().remove(SESSION_COOKIE)
    }

    /// Returns the names of the cookies of flows.
    pub fn flows(&self) -> Vec<String> {
        self.cookies().into_keys().filter(|name| name.starts_with("__Host-svc_auth_flow_")).collect()
    }

    /// Requests a path of the origin. Does not follow redirects.
    pub async fn get(&self, path: &str) -> Response {
        self.send(Method::GET, path, &[]).await
    }

    /// Requests a path of the origin. Returns `None` if the node does not respond.
    pub async fn try_get(&self, path: &str) -> Option<Response> {
        self.request(Method::GET, path, &[], String::new()).await.ok()
    }

    /// Submits a form of the origin's own pages.
    pub async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Response {
        self.post_with(path, fields, &[("origin", &self.origin), ("sec-fetch-site", "same-origin")]).await
    }

    /// Submits a form with these headers.
    pub async fn post_with(&self, path: &str, fields: &[(&str, &str)], headers: &[(&str, &str)]) -> Response {
        let body = Serializer::new(String::new()).extend_pairs(fields).finish();
        self.request(Method::POST, path, headers, body).await.unwrap()
    }

    /// Sends a request with these headers.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Response {
        self.request(method, path, headers, String::new()).await.unwrap()
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> reqwest::Result<Response> {
        let cookies: Vec<String> = self.cookies().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let host = self.origin.split_once("://").unwrap().1;
        let mut request = self.client.request(method, format!("http://{}{path}", self.edge)).body(body);
        request = request.header("host", host).header("x-forwarded-for", &self.address);
        if !cookies.is_empty() {
            request = request.header("cookie", cookies.join("; "));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await?;
        self.store_cookies(&response);
        Ok(response)
    }

    /// Stores the cookies of a response. An empty value removes a cookie.
    fn store_cookies(&self, response: &Response) {
        for cookie in response.headers().get_all("set-cookie") {
            let (cookie, attributes) = cookie.to_str().unwrap().split_once("; ").unwrap();
            for attribute in ["HttpOnly", "Secure", "SameSite=Lax", "Path=/"] {
                assert!(attributes.split("; ").any(|it| it == attribute), "{cookie}; {attributes}");
            }
            assert!(!attributes.contains("Domain"), "{attributes}");
            let (name, value) = cookie.split_once('=').unwrap();
            match value {
                "" => self.cookies.lock().unwrap().remove(name),
                value => self.cookies.lock().unwrap().insert(name.to_owned(), value.to_owned()),
            };
        }
    }

    /// Begins a flow. Returns the address of the provider.
    pub async fn begin(&self, provider: &str, next: &str) -> Url {
        let query = Serializer::new(String::new()).append_pair("next", next).finish();
        let response = self.get(&format!("/__svc/auth/login/{provider}?{query}")).await;
        assert!(response.status().is_redirection(), "{}", response.status());
        location(&response)
    }

    /// Submits the sign-in page of the provider. Returns the path of the callback.
    pub async fn submit(&self, authorize: &Url, fields: &[(&str, &str)]) -> String {
        let body = Serializer::new(String::new()).extend_pairs(fields).finish();
        let response = self.client.post(authorize.clone()).body(body).send().await.unwrap();
        let back = location(&response);
        assert!(back.as_str().starts_with(&format!("{}/__svc/auth/callback/", self.origin)), "{back}");
        format!("{}?{}", back.path(), back.query().unwrap())
    }

    /// Signs in as a person, up to the callback. Returns its path.
    pub async fn approve(&self, provider: &str, person: &str) -> String {
        let authorize = self.begin(provider, "/members").await;
        self.submit(&authorize, &[("person", person)]).await
    }

    /// Signs in as a person.
    pub async fn sign_in(&self, provider: &str, person: &str) {
        let callback = self.approve(provider, person).await;
        let response = self.get(&callback).await;
        let (status, next) = (response.status().as_u16(), response.headers()["location"].to_str().unwrap());
        assert_eq!((status, next), (303, "/members"));
        assert!(self.session_cookie().is_some());
    }

    /// Returns the user of the session, null without one.
    pub async fn user(&self) -> Value {
        let response = self.get("/__svc/auth/session").await;
        assert_eq!(
            (response.status().as_u16(), response.headers()["cache-control"].to_str().unwrap()),
            (200, "no-store")
        );
        response.json::<Value>().await.unwrap()["user"].clone()
    }

    /// Returns the page of the worker for members, or `None` if it redirects to the sign-in.
    pub async fn members_page(&self) -> Option<String> {
        let response = self.get("/members").await;
        match response.status().as_u16() {
            200 => Some(response.text().await.unwrap()),
            303 => None,
            status => panic!("{status}"),
        }
    }

    /// Returns the status and the text of an error page of the sign-in, which contains no session and no text of a
    /// provider.
    pub async fn error_page(&self, path: &str) -> (u16, String) {
        let before = self.session_cookie();
        let response = self.get(path).await;
        assert_eq!(self.session_cookie(), before, "{path}");
        let (status, page) = (response.status().as_u16(), response.text().await.unwrap());
        assert!((400..500).contains(&status) || status == 502, "{status} {page}");
        assert!(page.contains("<h1>") && page.contains("href="), "{page}");
        assert!(!page.to_ascii_lowercase().contains("text of the provider"), "{page}");
        (status, page)
    }
}

pub fn location(response: &Response) -> Url {
    let location = response.headers().get("location");
    let location = location.unwrap_or_else(|| panic!("{} without a location", response.status()));
    Url::parse(location.to_str().unwrap()).unwrap()
}

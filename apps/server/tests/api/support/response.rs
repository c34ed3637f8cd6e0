//! API responses.

use reqwest::header::HeaderMap;
use reqwest::{Method, Response};
use serde_json::Value;

#[derive(Debug, Clone)]
pub struct ApiResponse {
    pub request: String,
    pub status: u16,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
    /// The JSON body; null if the body is not JSON.
    pub body: Value,
}

impl ApiResponse {
    pub async fn read(method: &Method, path: &str, response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes().await.unwrap().to_vec();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Self { request: format!("{method} {path}"), status, headers, bytes, body }
    }

    /// Asserts the status and returns the body.
    #[track_caller]
    pub fn expect(&self, status: u16) -> &Value {
        assert_eq!(self.status, status, "{}: {}", self.request, self.body);
        &self.body
    }

    /// Asserts the status and the error code, and returns the body.
    #[track_caller]
    pub fn expect_error(&self, status: u16, code: &str) -> &Value {
        assert_eq!((self.status, self.body["code"].as_str()), (status, Some(code)), "{}: {}", self.request, self.body);
        &self.body
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

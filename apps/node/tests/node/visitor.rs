//! An HTTP client of the front.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use actix_web::web::Bytes;
use reqwest::header::{HOST, HeaderMap};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Method, RequestBuilder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::timeout::TIMEOUT;

pub struct Visitor {
    client: Client,
    address: SocketAddr,
}

/// Returns the builder of an HTTP client. It trusts no certificates, because loading those of the system takes long in a
/// debug build.
pub fn client_builder() -> ClientBuilder {
    Client::builder().redirect(Policy::none()).no_proxy().tls_certs_only([])
}

/// Returns the body of the response to a GET request.
pub async fn get_text(url: &str) -> String {
    client_builder().build().unwrap().get(url).send().await.unwrap().text().await.unwrap()
}

/// A complete response.
#[derive(Debug)]
pub struct VisitorResponse {
    pub status: u16,
    pub headers: HeaderMap,
    /// The body as text, with invalid UTF-8 replaced.
    pub body: String,
    pub bytes: Bytes,
}

impl VisitorResponse {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Visitor {
    pub fn new(address: SocketAddr) -> Self {
        // The client keeps no idle connections, because a graceful shutdown would wait for them.
        let client = client_builder().pool_max_idle_per_host(0).build().unwrap();
        Self { client, address }
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn request(&self, method: Method, host: &str, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address)).header(HOST, host)
    }

    pub async fn get(&self, host: &str, path: &str) -> VisitorResponse {
        Self::send(self.request(Method::GET, host, path)).await
    }

    /// Sends a GET request with these headers.
    pub async fn get_with(&self, host: &str, path: &str, headers: &[(&str, &str)]) -> VisitorResponse {
        let request = self.request(Method::GET, host, path);
        Self::send(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await
    }

    pub async fn send(request: RequestBuilder) -> VisitorResponse {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes().await.unwrap();
        VisitorResponse { status, headers, body: String::from_utf8_lossy(&bytes).into_owned(), bytes }
    }

    /// Repeats a GET request until the response has this status and content.
    pub async fn sees(&self, host: &str, path: &str, status: u16, content: &str) -> VisitorResponse {
        let began = Instant::now();
        loop {
            let seen = self.get(host, path).await;
            if seen.status == status && seen.body.contains(content) {
                return seen;
            }
            assert!(began.elapsed() < TIMEOUT, "timed out waiting for {status} {content:?}: {seen:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Sends raw request bytes on a new connection.
    pub async fn raw(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Returns the whole response to a raw request, which must contain `Connection: close`.
    pub async fn raw_answer(&self, request: &str) -> String {
        let mut answer = String::new();
        self.raw(request).await.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

//! Who visits the front.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use actix_web::web::Bytes;
use reqwest::header::{HOST, HeaderMap};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

pub struct Visitor {
    client: Client,
    address: SocketAddr,
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Seen {
    pub status: u16,
    pub headers: HeaderMap,
    /// As text, where it is some.
    pub body: String,
    pub bytes: Bytes,
}

impl Seen {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Visitor {
    pub fn new(address: SocketAddr) -> Self {
        // No connection outlives its request, so that a node that stops waits for none.
        let client = Client::builder().redirect(Policy::none()).no_proxy().pool_max_idle_per_host(0).build().unwrap();
        Self { client, address }
    }

    pub fn request(&self, method: Method, host: &str, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address)).header(HOST, host)
    }

    pub async fn get(&self, host: &str, path: &str) -> Seen {
        Self::send(self.request(Method::GET, host, path)).await
    }

    /// Asks with these headers.
    pub async fn get_with(&self, host: &str, path: &str, headers: &[(&str, &str)]) -> Seen {
        let request = self.request(Method::GET, host, path);
        Self::send(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await
    }

    pub async fn send(request: RequestBuilder) -> Seen {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes().await.unwrap();
        Seen { status, headers, body: String::from_utf8_lossy(&bytes).into_owned(), bytes }
    }

    /// Asks again until the status and the content are these.
    pub async fn sees(&self, host: &str, path: &str, status: u16, content: &str) -> Seen {
        let began = Instant::now();
        loop {
            let seen = self.get(host, path).await;
            if seen.status == status && seen.body.contains(content) {
                return seen;
            }
            assert!(began.elapsed() < Duration::from_secs(10), "{status} {content:?} awaited: {seen:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Connects and sends a request as it is, which no client would.
    pub async fn raw(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// The whole answer to such a request, which must ask for the connection to be closed.
    pub async fn raw_answer(&self, request: &str) -> String {
        let mut answer = String::new();
        self.raw(request).await.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

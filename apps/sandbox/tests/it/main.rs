//! Tests of the sandbox with an HTTP client, SMTP and DNS.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "in a test, a panic reports the failure"
)]

mod cross_origin;
mod dns;
mod identity;
mod lending;
mod objects;
mod pages;
mod payments;
mod process;
mod registrar;
mod sign_in;
mod sns;
mod webhooks;

use std::net::SocketAddr;
use std::time::Duration;

use reqwest::{Client, Response};
use sandbox::Sandbox;
use sandbox::config::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// A running sandbox with an HTTP client.
struct TestSandbox {
    base: String,
    smtp: SocketAddr,
    dns: SocketAddr,
    s3: SocketAddr,
    browser: Client,
    task: AbortHandle,
}

impl TestSandbox {
    async fn start() -> Self {
        Self::with_api("http://127.0.0.1:9").await
    }

    /// Starts a sandbox for a service with this base URL.
    async fn with_api(api_url: &str) -> Self {
        Self::with(api_url, "127.0.0.1:9".parse().unwrap()).await
    }

    /// Starts a sandbox for a service with this base URL, and for this mail server.
    async fn with(api_url: &str, mx: SocketAddr) -> Self {
        let free = "127.0.0.1:0".parse().unwrap();
        let config = Config {
            url: None,
            listen: free,
            smtp_listen: free,
            sns_listen: free,
            mx,
            dns_listen: free,
            dns_nameserver: None,
            s3_listen: free,
            s3_dir: None,
            api_url: api_url.to_owned(),
            app: None,
        };
        let sandbox = Sandbox::start(&config).await.unwrap();
        let base = format!("http://{}", sandbox.address().unwrap());
        let (smtp, dns, s3) = (sandbox.smtp().address(), sandbox.dns().address(), sandbox.s3().address());
        Self { base, smtp, dns, s3, browser: browser(), task: tokio::spawn(sandbox.run()).abort_handle() }
    }

    async fn get(&self, path: &str) -> Response {
        self.browser.get(format!("{}{path}", self.base)).send().await.unwrap()
    }

    async fn text(&self, path: &str) -> String {
        let response = self.get(path).await;
        assert_eq!(response.status(), 200, "{path}");
        response.text().await.unwrap()
    }

    /// Waits until a page contains a text this many times.
    async fn wait_for(&self, path: &str, text: &str, count: usize) {
        let contains = async {
            while self.text(path).await.matches(text).count() < count {
                sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(timeout(Duration::from_secs(30), contains).await.is_ok(), "{path}: {text}");
    }

    /// Submits a form.
    async fn submit(&self, path: &str, fields: &[(&str, &str)]) -> Response {
        let mut body = url::form_urlencoded::Serializer::new(String::new());
        let body = body.extend_pairs(fields).finish();
        self.browser.post(format!("{}{path}", self.base)).body(body).send().await.unwrap()
    }

    /// Sends a mail over SMTP.
    async fn send(&self, to: &str, message: &str) {
        let responses = self.send_to(&[to], message).await;
        assert!(responses.contains("250 2.0.0 Ok "), "{responses}");
    }

    /// Sends a mail to several recipients over SMTP. Returns the responses.
    async fn send_to(&self, to: &[&str], message: &str) -> String {
        let recipients: String = to.iter().map(|to| format!("RCPT TO:<{to}>\r\n")).collect();
        let mut stream = TcpStream::connect(self.smtp).await.unwrap();
        let session = format!(
            "EHLO test\r\nMAIL FROM:<svc@svc.example>\r\n{recipients}DATA\r\n{}\r\n.\r\nQUIT\r\n",
            message.replace('\n', "\r\n")
        );
        stream.write_all(session.as_bytes()).await.unwrap();
        let mut responses = String::new();
        stream.read_to_string(&mut responses).await.unwrap();
        responses
    }
}

impl Drop for TestSandbox {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns an HTTP client that does not follow redirects.
fn browser() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().build().unwrap()
}

fn header(response: &Response, name: &str) -> String {
    response.headers()[name].to_str().unwrap().to_owned()
}

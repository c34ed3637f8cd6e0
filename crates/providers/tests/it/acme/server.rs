//! A small authority over HTTP. Each path has one object, whose response a test can replace.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// An authority.
pub struct AcmeServer {
    pub base: String,
    state: Arc<Mutex<State>>,
    task: AbortHandle,
}

#[derive(Default)]
struct State {
    /// The replaced responses by path. The empty response closes the connection.
    responses: HashMap<&'static str, String>,
    /// The requests, as a path and the payload of the JWS.
    calls: Vec<(String, Value)>,
}

impl AcmeServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::<Mutex<State>>::default();
        let (shared, own) = (state.clone(), base.clone());
        let serve = async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(respond(stream, shared.clone(), own.clone()));
            }
        };
        Self { base, state, task: tokio::spawn(serve).abort_handle() }
    }

    /// Responds to the path with this status line, these header lines and this body from now on.
    pub fn respond(&self, path: &'static str, status: &str, headers: &str, body: &str) {
        let length = body.len();
        let response = format!(
            "HTTP/1.1 {status} .\r\nReplay-Nonce: next\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        self.state.lock().unwrap().responses.insert(path, response);
    }

    /// Closes the connection of requests to the path from now on.
    pub fn close(&self, path: &'static str) {
        self.state.lock().unwrap().responses.insert(path, String::new());
    }

    /// Restores the own responses.
    pub fn restore(&self) {
        self.state.lock().unwrap().responses.clear();
    }

    /// Returns the payloads of the requests to the path since the last call of this function.
    pub fn payloads(&self, path: &str) -> Vec<Value> {
        let calls = std::mem::take(&mut self.state.lock().unwrap().calls);
        calls.into_iter().filter(|(called, _)| called == path).map(|(_, payload)| payload).collect()
    }
}

impl Drop for AcmeServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn respond(mut stream: TcpStream, state: Arc<Mutex<State>>, base: String) {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    let (path, body) = loop {
        let read = stream.read(&mut buffer).await.unwrap();
        if read == 0 {
            return;
        }
        request.extend_from_slice(&buffer[..read]);
        if let Some(parsed) = parse(&request) {
            break parsed;
        }
    };
    let jws = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let payload = URL_SAFE_NO_PAD.decode(jws["payload"].as_str().unwrap_or_default()).unwrap();
    let payload = serde_json::from_slice(&payload).unwrap_or_default();
    let response = {
        let mut state = state.lock().unwrap();
        state.calls.push((path.clone(), payload));
        state.responses.get(path.as_str()).cloned().unwrap_or_else(|| own_response(&path, &base))
    };
    // The client may have closed the connection.
    let _ = stream.write_all(response.as_bytes()).await;
}

/// Returns the path and the body of a complete request.
fn parse(request: &[u8]) -> Option<(String, Vec<u8>)> {
    let end = request.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&request[..end]).into_owned();
    let length = |line: &str| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok();
    let length = head.lines().find_map(length).unwrap_or_default();
    let body = request.get(end + 4..end + 4 + length)?.to_vec();
    Some((head.split(' ').nth(1)?.to_owned(), body))
}

/// Returns the response of an authority whose order waits for its challenges.
fn own_response(path: &str, base: &str) -> String {
    let link = |path: &str| format!("{base}{path}");
    let (status, location, body) = match path {
        "/directory" => {
            let directory = json!({
                "newNonce": link("/nonce"), "newAccount": link("/new-account"), "newOrder": link("/new-order"),
                "revokeCert": link("/revoke"), "keyChange": link("/key-change"), "renewalInfo": link("/renewal"),
            });
            (200, "", directory)
        }
        "/new-account" => (201, "/account", json!({ "status": "valid" })),
        "/account" => (200, "", json!({ "status": "valid" })),
        "/new-order" => (201, "/order", order(base)),
        "/order" => (200, "", order(base)),
        "/authorization" => {
            let challenge =
                |kind: &str| json!({ "type": kind, "url": link("/challenge"), "token": "token", "status": "pending" });
            let authorization = json!({
                "identifier": { "type": "dns", "value": "www.example.org" }, "status": "pending",
                "challenges": [challenge("http-01"), challenge("dns-01")],
            });
            (200, "", authorization)
        }
        "/challenge" => {
            (200, "", json!({ "type": "http-01", "url": link("/challenge"), "token": "token", "status": "processing" }))
        }
        _ => (200, "", Value::Null),
    };
    let location = if location.is_empty() { String::new() } else { format!("Location: {}\r\n", link(location)) };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let length = body.len();
    format!(
        "HTTP/1.1 {status} .\r\nReplay-Nonce: next\r\n{location}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn order(base: &str) -> Value {
    json!({
        "status": "pending", "identifiers": [{ "type": "dns", "value": "www.example.org" }],
        "authorizations": [format!("{base}/authorization")], "finalize": format!("{base}/finalize"),
    })
}

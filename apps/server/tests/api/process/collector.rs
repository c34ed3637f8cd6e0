//! A collector of traces (OTLP over HTTP with protobuf).

use std::sync::{Arc, Mutex};

use actix_web::{App, HttpResponse, HttpServer, web};

use super::Process;
use crate::support::client;

/// Requests of one trace.
const REQUESTS: usize = 10;

/// Stores what a process exports.
pub struct Collector {
    address: String,
    received: Arc<Mutex<Vec<u8>>>,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Collector {
    pub fn start() -> Self {
        let received = Arc::new(Mutex::new(Vec::new()));
        let bodies = received.clone();
        let server = HttpServer::new(move || {
            let bodies = bodies.clone();
            let take = move |body: web::Bytes| {
                bodies.lock().unwrap().extend_from_slice(&body);
                async { HttpResponse::Ok().finish() }
            };
            App::new().route("/v1/traces", web::post().to(take))
        });
        let server = server.workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", server.addrs()[0]);
        Self { address, received, server: tokio::spawn(server.run()) }
    }

    /// Returns the setting of a process that exports its traces to this collector.
    pub fn setting(&self) -> (&'static str, String) {
        ("SVC_OTLP_URL", self.address.clone())
    }

    /// Returns the number of occurrences of these bytes.
    pub fn count(&self, bytes: &[u8]) -> usize {
        self.received.lock().unwrap().windows(bytes.len()).filter(|window| *window == bytes).count()
    }

    /// Returns the number of spans of a trace. A span starts with its trace as field 1.
    pub fn spans(&self, trace: u128) -> usize {
        self.count(&[&[0x0a, 16], &trace.to_be_bytes()[..]].concat())
    }

    /// Returns the number of statements of the ten requests of `send_traced`. Each request and each statement is one
    /// span.
    pub fn statements(&self, trace: u128) -> usize {
        let spans = self.spans(trace);
        assert!(spans >= REQUESTS, "{spans} spans of {REQUESTS} requests");
        spans - REQUESTS
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Returns the value of the header `traceparent` of a request of this trace.
pub fn traceparent(trace: u128) -> String {
    format!("00-{trace:032x}-b7ad6b7169203331-01")
}

impl Process {
    /// Sends ten requests as one trace, after one outside of it: the first request may record the use of its
    /// credential.
    pub async fn send_traced(&self, token: &str, path: &str, trace: u128) {
        self.json(token, "GET", path, None).await;
        for _ in 0..REQUESTS {
            let request = client().get(format!("{}{path}", self.base)).bearer_auth(token);
            let response = request.header("traceparent", traceparent(trace)).send().await.unwrap();
            assert_eq!(response.status(), 200);
            response.bytes().await.unwrap();
        }
    }
}

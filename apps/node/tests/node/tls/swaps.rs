//! Renewal while visitors connect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustls::SupportedProtocolVersion;
use rustls::client::Resumption;
use rustls::version::{TLS12, TLS13};
use sandbox::Certificate;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;

use super::requests::Http2;
use super::{Client, HOST, NAMES, Rig, wait_for};

/// The visitors, each with its version of TLS and whether it resumes sessions.
const VISITORS: [(&SupportedProtocolVersion, bool); 4] =
    [(&TLS13, false), (&TLS13, true), (&TLS12, false), (&TLS12, true)];

/// Visitors that connect all the time. Each handshake must succeed.
struct Visitors {
    tasks: JoinSet<()>,
    stopping: Arc<AtomicBool>,
    /// The number of handshakes of each visitor.
    handshakes: Vec<Arc<AtomicUsize>>,
}

impl Visitors {
    fn start(rig: &Rig, trusted: &[&Certificate]) -> Self {
        let (mut tasks, stopping) = (JoinSet::new(), Arc::<AtomicBool>::default());
        let handshakes = VISITORS.map(|(version, resumes)| {
            let mut client = Client::with_versions(rig.address(), trusted, &[version]);
            if !resumes {
                client = client.with(|config| config.resumption = Resumption::disabled());
            }
            let (stopping, handshakes) = (Arc::clone(&stopping), Arc::<AtomicUsize>::default());
            let counter = Arc::clone(&handshakes);
            tasks.spawn(async move {
                while !stopping.load(Ordering::Relaxed) {
                    assert!(client.get(HOST, "/").await.ends_with("home"));
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
            handshakes
        });
        Self { tasks, stopping, handshakes: handshakes.to_vec() }
    }

    fn handshakes(&self) -> Vec<usize> {
        self.handshakes.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Waits until each visitor has connected again twice: the second handshake began after the call.
    async fn connect_again(&self) {
        let before = self.handshakes();
        let have_connected = async || self.handshakes().iter().zip(&before).all(|(now, before)| *now >= before + 2);
        wait_for("handshakes", have_connected).await;
    }

    async fn stop(mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        while let Some(visitor) = self.tasks.join_next().await {
            visitor.unwrap();
        }
    }
}

/// Sends a request on a connection that stays open.
async fn get_kept_alive(stream: &mut TlsStream<TcpStream>) {
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n").as_bytes()).await.unwrap();
    let (mut response, mut buffer) = (Vec::new(), [0; 4096]);
    while !response.ends_with(b"home") {
        let length = stream.read(&mut buffer).await.unwrap();
        assert_ne!(length, 0, "the connection was closed");
        response.extend_from_slice(&buffer[..length]);
    }
    assert!(response.starts_with(b"HTTP/1.1 200 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn renewal_fails_no_handshake_and_drops_no_connection() {
    const RENEWALS: usize = 25;
    let (rig, first) = Rig::start_with_certificate().await;
    let renewals: Vec<Certificate> = (0..RENEWALS).map(|_| Certificate::generate_for(&NAMES)).collect();
    let trusted: Vec<&Certificate> = renewals.iter().chain([&first]).collect();
    // Connections that were established with the first certificate.
    let mut http_1 = rig.client(&trusted).connect(HOST).await.unwrap();
    let http_2 = Http2::connect_with(rig.client(&trusted)).await;
    let visitors = Visitors::start(&rig, &trusted);
    for renewal in &renewals {
        rig.core.issue("shop", HOST, renewal);
        rig.client(&trusted).presents(HOST, renewal).await;
        get_kept_alive(&mut http_1).await;
        let seen = http_2.get("/").await;
        assert_eq!((seen.status, seen.body.as_str()), (200, "home"));
        visitors.connect_again().await;
    }
    visitors.stop().await;
    let metrics = rig.metrics().await;
    assert!(metrics.contains("svc_node_tls_handshakes_total{outcome=\"resumed\"}"), "{metrics}");
    for outcome in ["failed", "timeout"] {
        let counter = format!("svc_node_tls_handshakes_total{{outcome=\"{outcome}\"}}");
        assert!(!metrics.contains(&counter), "{metrics}");
    }
    wait_for("the removal of replaced files", async || rig.saved() == 1).await;
    drop((http_1, http_2));
    rig.node.stop().await;
}

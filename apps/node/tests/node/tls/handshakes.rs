//! Selection of certificates and protocols.

use rustls::{AlertDescription, HandshakeKind};
use sandbox::Certificate;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Client, HOST, Rig};

#[tokio::test(flavor = "multi_thread")]
async fn certificate_is_selected_by_server_name() {
    let rig = Rig::start().await;
    let [shop, blog] = [HOST, "blog.localhost"].map(|name| Certificate::generate_for(&[name]));
    let wildcard = Certificate::generate_for(&["*.apps.localhost"]);
    let apex = rig.core.store_certificate("*.apps.localhost", &wildcard);
    rig.core.set_platform_certificates(vec![apex]);
    rig.core.issue("shop", HOST, &shop);
    rig.core.issue("blog", "blog.localhost", &blog);
    let client = rig.client(&[&shop, &blog, &wildcard]);
    client.presents(HOST, &shop).await;
    client.presents("blog.localhost", &blog).await;
    client.presents("one.apps.localhost", &wildcard).await;
    for unknown in ["apps.localhost", "a.b.apps.localhost", "other.localhost", "localhost"] {
        assert_eq!(client.alert(unknown).await, AlertDescription::UnrecognisedName, "{unknown}");
    }
    let nameless = rig.client(&[&shop]).with(|config| config.enable_sni = false);
    assert_eq!(nameless.alert(HOST).await, AlertDescription::MissingExtension);
    // The exact name comes before the wildcard.
    let exact = Certificate::generate_for(&["one.apps.localhost"]);
    rig.core.issue("one", "one.apps.localhost", &exact);
    let client = rig.client(&[&exact, &wildcard]);
    client.presents("one.apps.localhost", &exact).await;
    client.presents("two.apps.localhost", &wildcard).await;
    let response = client.get("two.apps.localhost", "/").await;
    assert!(response.starts_with("HTTP/1.1 404 ") && response.contains("unknown_hostname"), "{response}");
    rig.has_metrics(&[
        "svc_node_tls_handshakes_total{outcome=\"no_name\"} 1",
        "svc_node_tls_certificates{source=\"issued\"} 4",
        "svc_node_tls_certificates{source=\"files\"} 0",
        "svc_node_tls_missing_certificates 0",
    ])
    .await;
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn alpn_selects_http_2_or_http_1() {
    let (rig, certificate) = Rig::start_with_certificate().await;
    let selected = async |offered: &[&[u8]]| {
        let offered = offered.iter().map(|protocol| protocol.to_vec()).collect();
        let stream = rig.client(&[&certificate]).with(|config| config.alpn_protocols = offered).connect(HOST).await;
        stream.unwrap().get_ref().1.alpn_protocol().map(<[u8]>::to_vec)
    };
    assert_eq!(selected(&[b"http/1.1", b"h2"]).await.unwrap(), b"h2");
    assert_eq!(selected(&[b"http/1.1"]).await.unwrap(), b"http/1.1");
    assert_eq!(selected(&[]).await, None);
    let other = rig.client(&[&certificate]).with(|config| config.alpn_protocols = vec![b"acme-tls/1".to_vec()]);
    assert_eq!(other.alert(HOST).await, AlertDescription::NoApplicationProtocol);
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_resumed() {
    let (rig, certificate) = Rig::start_with_certificate().await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let client = Client::with_versions(rig.address(), &[&certificate], &[version]);
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut stream = client.connect(HOST).await.unwrap();
            // The client receives the tickets with the response.
            let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.unwrap();
            assert_eq!(stream.get_ref().1.handshake_kind(), Some(expected), "{version:?}");
        }
    }
    rig.has_metrics(&["svc_node_tls_handshakes_total{outcome=\"resumed\"} 2"]).await;
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_without_a_handshake_is_closed() {
    let (rig, certificate) = Rig::start_with_certificate().await;
    let mut silent = TcpStream::connect(rig.address()).await.unwrap();
    let mut plain = TcpStream::connect(rig.address()).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n").await.unwrap();
    let mut rejected = Vec::new();
    // The node sends an alert and closes the connection.
    let _ = plain.read_to_end(&mut rejected).await;
    assert!(!rejected.starts_with(b"HTTP"), "{rejected:?}");
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
    assert!(rig.client(&[&certificate]).get(HOST, "/").await.ends_with("home"));
    rig.has_metrics(&[
        "svc_node_tls_handshakes_total{outcome=\"timeout\"} 1",
        "svc_node_tls_handshakes_total{outcome=\"failed\"} 1",
    ])
    .await;
    rig.node.stop().await;
}

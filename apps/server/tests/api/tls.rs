//! The TLS listener of the API, with real TLS clients and the operator's certificates.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use actix_web::web::Bytes;
use h2::client::SendRequest;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sandbox::Certificate;
use server::config::TlsConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::{App, eventually};

const HOST: &str = "api.svc.example";

/// Starts a server whose public URL is that of [`HOST`], with certificates in this folder.
async fn start(folder: &Path) -> App {
    App::with(|config| {
        let listen = "127.0.0.1:0".parse().unwrap();
        config.tls = Some(TlsConfig { listen, hostname: HOST.to_owned(), files: Some(folder.to_owned()) });
        config.gateway.site.public_url = format!("https://{HOST}");
    })
    .await
}

fn write(folder: &Path, certificate: &Certificate) {
    fs::write(folder.join(format!("{HOST}.pem")), format!("{}{}", certificate.key(), certificate.chain())).unwrap();
}

fn leaf(certificate: &Certificate) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(certificate.chain().as_bytes()).unwrap()
}

/// Connects with a client that trusts the authorities of these certificates.
async fn connect(
    app: &App,
    name: &str,
    trusted: &[&Certificate],
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for certificate in trusted {
        roots.add(CertificateDer::from_pem_slice(certificate.authority().as_bytes()).unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let stream = TcpStream::connect(app.tls.unwrap()).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await
}

/// Sends a request on a connection that stays open. Returns the head of the response.
async fn get(stream: &mut TlsStream<TcpStream>, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    loop {
        let mut buffer = [0; 16384];
        let length = stream.read(&mut buffer).await.unwrap();
        response.extend_from_slice(&buffer[..length]);
        let text = String::from_utf8_lossy(&response);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let header = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = header.expect("a length").parse().unwrap();
        if body.len() >= length {
            return head.to_owned();
        }
    }
}

/// Sends a request over HTTP/2. Returns the status and the body.
async fn send(connection: &SendRequest<Bytes>, request: http::request::Builder) -> Result<(u16, Vec<u8>), h2::Error> {
    let mut connection = connection.clone().ready().await?;
    let (head, mut body) = connection.send_request(request.body(()).unwrap(), true)?.0.await?.into_parts();
    let mut bytes = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        bytes.extend(chunk);
    }
    Ok((head.status.as_u16(), bytes))
}

#[tokio::test(flavor = "multi_thread")]
async fn api_is_served_over_both_versions_of_http() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Certificate::generate_for(&[HOST]);
    write(folder.path(), &certificate);
    let app = start(folder.path()).await;
    let mut stream = connect(&app, HOST, &[&certificate], &[]).await.unwrap();
    let head = get(&mut stream, "/v1/config").await;
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("strict-transport-security: "), "{head}");

    let stream = connect(&app, HOST, &[&certificate], &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (requests, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    for path in ["/v1/config", "/readyz", "/v1/me"] {
        let (status, body) = send(&requests, http::Request::get(format!("https://{HOST}{path}"))).await.unwrap();
        let is_json = serde_json::from_slice::<serde_json::Value>(&body).is_ok();
        assert_eq!((status, is_json), (if path == "/v1/me" { 401 } else { 200 }, true), "{path}");
    }
    // A field section that is larger than the limit ends the connection.
    let large = http::Request::get(format!("https://{HOST}/v1/config")).header("x-large", "~".repeat(33 << 10));
    assert!(send(&requests, large).await.is_err());
    assert!(connection.await.unwrap().is_err());
    // A connection that sends no server name of the API is rejected.
    assert!(connect(&app, "other.svc.example", &[&certificate], &[]).await.is_err());
    let metrics = reqwest::get(format!("{}/metrics", app.internal)).await.unwrap().text().await.unwrap();
    assert!(metrics.contains("svc_tls_handshakes_total{outcome=\"full\"} 2"), "{metrics}");
    assert!(metrics.contains("svc_tls_certificates{source=\"files\"} 1"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_requests_in_progress_count_toward_the_limit_of_a_connection() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Certificate::generate_for(&[HOST]);
    write(folder.path(), &certificate);
    let app = start(folder.path()).await;
    let stream = connect(&app, HOST, &[&certificate], &[b"h2"]).await.unwrap();
    let (requests, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let url = format!("https://{HOST}/v1/config");
    let preflight = || {
        let request = http::Request::options(&url).header("origin", "http://localhost:3000");
        request.header("access-control-request-method", "GET")
    };
    // Responses from memory, preflight requests and others. More than 512 of a kind must not be open.
    for _ in 0..520 {
        for request in [http::Request::get(&url), preflight(), http::Request::get(format!("{url}?other"))] {
            let (status, _) = send(&requests, request).await.unwrap();
            assert!(status < 500, "{status}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_certificate_is_used_without_closing_connections() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = [(); 2].map(|()| Certificate::generate_for(&[HOST]));
    write(folder.path(), &first);
    let app = start(folder.path()).await;
    let mut old = connect(&app, HOST, &[&first], &[]).await.unwrap();
    get(&mut old, "/healthz").await;
    write(folder.path(), &second);
    let presented = async || {
        let stream = connect(&app, HOST, &[&first, &second], &[]).await.unwrap();
        let presented = stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
        (presented == leaf(&second)).then_some(())
    };
    eventually("the second certificate", presented).await;
    let head = get(&mut old, "/healthz").await;
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert_eq!(old.get_ref().1.peer_certificates().unwrap()[0], leaf(&first));
}

//! TLS, through a proxy in front of Postgres that answers `SSLRequest` and holds a certificate.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::PathBuf;
use std::sync::Arc;

use kernel::{ClockRng, Secret};
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use store::{Config, Store};
use testkit::TestDatabase;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_postgres::config::Host;
use tokio_rustls::TlsAcceptor;

/// Returns a CA certificate, and a TLS configuration with a certificate for `localhost`.
fn certificate() -> (String, rustls::ServerConfig) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = config.with_no_client_auth().with_single_cert(vec![server.der().clone()], key).unwrap();
    (authority.pem(), config)
}

/// Returns the unix socket of a database.
pub fn socket(database: &tokio_postgres::Config) -> PathBuf {
    let [Host::Unix(folder)] = database.get_hosts() else { panic!("not one unix socket") };
    folder.join(format!(".s.PGSQL.{}", database.get_ports().first().copied().unwrap_or(5432)))
}

/// Serves the database over TLS and returns the port.
async fn proxy(database: &tokio_postgres::Config, tls: rustls::ServerConfig) -> u16 {
    let socket = socket(database);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = TlsAcceptor::from(Arc::new(tls));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client, tls.clone(), socket.clone()));
        }
    });
    port
}

async fn serve(mut client: TcpStream, tls: TlsAcceptor, socket: PathBuf) {
    let mut request = [0; 8];
    client.read_exact(&mut request).await.unwrap();
    // SSLRequest (PostgreSQL protocol 3.0). A client that starts with anything else uses plain text.
    assert_eq!(request[4..], 80_877_103u32.to_be_bytes());
    client.write_all(b"S").await.unwrap();
    let Ok(mut client) = tls.accept(client).await else { return };
    let mut server = UnixStream::connect(socket).await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_name_and_chain_are_verified() {
    let test = TestDatabase::create().await;
    let database: tokio_postgres::Config = test.url().parse().unwrap();
    let (root, tls) = certificate();
    let (other_root, _) = certificate();
    let port = proxy(&database, tls).await;
    let folder = std::env::temp_dir();
    let file = |name: &str, pem: &str| {
        let path = folder.join(format!("svc-tls-{port}-{name}.pem"));
        std::fs::write(&path, pem).unwrap();
        path
    };
    let (root, other_root) = (file("root", &root), file("other_root", &other_root));
    let connect = async |host: &str, parameters: String| {
        let (user, name) = (database.get_user().unwrap(), database.get_dbname().unwrap());
        let url = format!("postgres://{user}@{host}:{port}/{name}?{parameters}");
        let store = Store::new(&Config::new(Secret::new(url), "test"), ClockRng::system());
        let store = store.map_err(|error| error.to_string())?;
        store.connection().await.map(drop).map_err(|error| error.to_string())
    };
    let trusting = |mode: &str| format!("sslmode={mode}&sslrootcert={}", root.display());
    for mode in ["verify-full", "verify-ca", "require"] {
        connect("localhost", trusting(mode)).await.unwrap();
        connect("127.0.0.1", trusting(mode)).await.unwrap_err();
    }
    connect("localhost", format!("sslmode=verify-full&sslrootcert={}", other_root.display())).await.unwrap_err();
    connect("localhost", "sslmode=verify-full".to_owned()).await.unwrap_err();
    let empty = file("empty", "");
    let error = connect("localhost", format!("sslmode=verify-full&sslrootcert={}", empty.display())).await.unwrap_err();
    assert!(error.contains("no CA certificate"), "{error}");
    for path in [root, other_root, empty] {
        std::fs::remove_file(path).unwrap();
    }
}

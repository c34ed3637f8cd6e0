//! TLS clients of other libraries: OpenSSL and Python.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use sandbox::Certificate;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::task::spawn_blocking;

use super::{HOST, Rig};

/// Writes the certificate of the authority to a file.
fn authority(rig: &Rig, certificate: &Certificate) -> PathBuf {
    let path = rig.dir.path().join("authority.pem");
    std::fs::write(&path, certificate.authority()).unwrap();
    path
}

async fn run(mut program: Command) -> Option<Output> {
    let name = program.get_program().to_string_lossy().into_owned();
    let output = spawn_blocking(move || program.stdin(Stdio::null()).output()).await.unwrap();
    output.inspect_err(|error| eprintln!("SKIPPED: {name} is not installed: {error}")).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn openssl_connects_only_with_forward_secrecy() {
    let (rig, certificate) = Rig::start_with_certificate().await;
    let authority = authority(&rig, &certificate);
    let connect = async |options: &[&str]| {
        let mut program = Command::new("openssl");
        program.arg("s_client").arg("-connect").arg(rig.address().to_string());
        program.args(["-servername", "SHOP.localhost", "-verify_hostname", HOST, "-verify_return_error", "-CAfile"]);
        program.arg(&authority).args(options);
        let output = run(program).await?;
        let printed = [output.stdout, output.stderr].concat();
        Some((output.status.success(), String::from_utf8_lossy(&printed).into_owned()))
    };
    for (options, expected) in [
        (&["-tls1_3"][..], "TLSv1.3, Cipher is TLS_"),
        (&["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"], "TLS_CHACHA20_POLY1305_SHA256"),
        (&["-tls1_2"], "TLSv1.2, Cipher is ECDHE-"),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"], "ECDHE-ECDSA-AES128-GCM-SHA256"),
        (&["-alpn", "h2,http/1.1"], "ALPN protocol: h2"),
        (&["-alpn", "http/1.1"], "ALPN protocol: http/1.1"),
    ] {
        let Some((succeeded, output)) = connect(options).await else { return };
        assert!(succeeded && output.contains(expected), "{options:?}: {output}");
    }
    for (options, alert) in [
        (&["-tls1_2", "-cipher", "AES256-GCM-SHA384:AES128-GCM-SHA256"][..], "handshake failure"),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA:ECDHE-ECDSA-AES256-SHA384"], "handshake failure"),
        (&["-tls1_3", "-ciphersuites", "TLS_AES_128_CCM_SHA256"], "handshake failure"),
        (&["-groups", "P-521"], "handshake failure"),
        (&["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"], "handshake failure"),
        (&["-tls1", "-cipher", "DEFAULT@SECLEVEL=0"], "handshake failure"),
    ] {
        let Some((succeeded, output)) = connect(options).await else { return };
        assert!(!succeeded && output.contains(&format!("alert {alert}")), "{options:?}: {output}");
    }
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_verifies_the_certificate() {
    const SCRIPT: &str = "
import socket, ssl, sys
address, port, name, authority = sys.argv[1:]
context = ssl.create_default_context(cafile=authority)
context.set_alpn_protocols(['http/1.1'])
with socket.create_connection((address, int(port))) as plain:
    with context.wrap_socket(plain, server_hostname=name) as stream:
        stream.sendall(f'GET / HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n'.encode())
        body = b''
        while chunk := stream.recv(4096):
            body += chunk
        print(stream.version(), stream.selected_alpn_protocol(), body.decode().split('\\r\\n\\r\\n')[1])
";
    let (rig, certificate) = Rig::start_with_certificate().await;
    let authority = authority(&rig, &certificate);
    let connect = async |name: &str| {
        let mut program = Command::new("python3");
        let (ip, port) = (rig.address().ip().to_string(), rig.address().port().to_string());
        program.args(["-c", SCRIPT, &ip, &port, name]).arg(&authority);
        run(program).await
    };
    let Some(output) = connect(HOST).await else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "TLSv1.3 http/1.1 home\n", "{output:?}");
    let output = connect("other.localhost").await.unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.to_lowercase().contains("unrecognized name"), "{error}");
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn openssl_cannot_renegotiate() {
    let (rig, _certificate) = Rig::start_with_certificate().await;
    let mut program = tokio::process::Command::new("openssl");
    program.args(["s_client", "-tls1_2", "-servername", HOST, "-connect", &rig.address().to_string()]);
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let Ok(mut client) = program.spawn() else {
        eprintln!("SKIPPED: openssl is not installed");
        return;
    };
    // The input stays open: its end would end the connection.
    let mut input = client.stdin.take().unwrap();
    input.write_all(b"R\n").await.unwrap();
    let output = client.wait_with_output().await.unwrap();
    let (printed, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success() && error.contains("no renegotiation"), "{printed}\n{error}");
    // Without this extension (RFC 5746), clients would have to assume that an attacker can renegotiate.
    assert!(printed.contains("Secure Renegotiation IS supported"), "{printed}");
    assert!(printed.contains("Compression: NONE"), "{printed}");
    rig.node.stop().await;
}

/// Runs the scan against a node.
async fn scan(rig: &Rig, authority: &Path) -> Option<Value> {
    let mut program = Command::new("python3");
    let (ip, port) = (rig.address().ip().to_string(), rig.address().port().to_string());
    program.args(["-c", include_str!("scan.py"), &ip, &port, HOST]).arg(authority);
    let output = run(program).await?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn scan_finds_only_secure_parameters() {
    let (rig, certificate) = Rig::start_with_certificate().await;
    let authority = authority(&rig, &certificate);
    let Some(scan) = scan(&rig, &authority).await else { return };
    let versions = &scan["versions"];
    for old in ["TLSv1", "TLSv1_1"] {
        assert_eq!(versions[old], "SSLV3_ALERT_HANDSHAKE_FAILURE", "{scan}");
    }
    assert_eq!(
        (&versions["TLSv1_2"]["version"], &versions["TLSv1_3"]["version"]),
        (&json!("TLSv1.2"), &json!("TLSv1.3"))
    );
    for version in ["TLSv1_2", "TLSv1_3"] {
        assert_eq!(versions[version]["compression"], Value::Null, "{scan}");
    }
    assert_only_with_forward_secrecy(&scan, "ECDSA");
    assert_eq!(
        (&scan["both_protocols"]["protocol"], &scan["http_1_1"]["protocol"]),
        (&json!("h2"), &json!("http/1.1"))
    );
    let refusal = scan["other_protocol"].as_str().unwrap().to_lowercase().replace('_', " ");
    assert!(refusal.contains("no application protocol"), "{scan}");
    assert_eq!(
        (&scan["other_name"], &scan["no_name"]),
        (&json!("TLSV1_UNRECOGNIZED_NAME"), &json!("TLSV13_ALERT_MISSING_EXTENSION"))
    );
    rig.node.stop().await;
}

/// With a certificate for ECDSA, no server can offer a key exchange with RSA.
#[tokio::test(flavor = "multi_thread")]
async fn certificate_for_rsa_has_forward_secrecy_too() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = ["crt", "key"].map(|extension| folder.path().join(format!("{HOST}.{extension}")));
    let mut program = Command::new("openssl");
    program.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "10", "-subj", "/CN=shop", "-addext"]);
    program.arg(format!("subjectAltName=DNS:{HOST}")).arg("-keyout").arg(&key).arg("-out").arg(&certificate);
    let Some(output) = run(program).await else { return };
    assert!(output.status.success(), "{output:?}");
    let rig = Rig::start_with(|config| config.tls.as_mut().unwrap().files = Some(folder.path().to_owned())).await;
    let Some(scan) = scan(&rig, &certificate).await else { return };
    assert_only_with_forward_secrecy(&scan, "RSA");
    rig.node.stop().await;
}

/// Asserts that of all cipher suites of TLS 1.2, only those with ECDHE and authenticated encryption are accepted.
fn assert_only_with_forward_secrecy(scan: &Value, key: &str) {
    for weak in ["AES128-GCM-SHA256", "DHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-SHA", "ADH-AES128-SHA"] {
        assert!(scan["offered"].as_array().unwrap().contains(&json!(weak)), "{weak} was not offered: {scan}");
    }
    let suites = ["AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305"];
    assert_eq!(scan["accepted"], json!(suites.map(|suite| format!("ECDHE-{key}-{suite}"))));
}

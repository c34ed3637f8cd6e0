//! `svc-sandbox` as a process.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

#[tokio::test]
async fn too_many_open_files_do_not_end_a_server() {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64 && exec \"$0\"", env!("CARGO_BIN_EXE_svc-sandbox")]);
    for listener in ["", "SMTP_", "SNS_", "DNS_", "S3_"] {
        command.env(format!("SVC_SANDBOX_{listener}LISTEN"), "127.0.0.1:0");
    }
    command.env("SVC_SANDBOX_S3_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/sandbox-process"));
    let mut sandbox = command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut output = BufReader::new(sandbox.stdout.take().unwrap()).lines();
    let started = output.next_line().await.unwrap().unwrap();
    let (address, _) = started.strip_prefix("listening on http://").unwrap().split_once(',').unwrap();

    let mut connections = Vec::new();
    for _ in 0..64 {
        connections.push(TcpStream::connect(address).await.unwrap());
    }
    let mut errors = BufReader::new(sandbox.stderr.take().unwrap()).lines();
    let error = errors.next_line().await.unwrap().unwrap();
    assert!(error.contains("Too many open files"), "{error}");
    drop(connections);

    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /dns HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
}

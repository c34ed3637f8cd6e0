//! `svc-sandbox` as a process.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

const PROGRAM: &str = env!("CARGO_BIN_EXE_svc-sandbox");

/// Starts the sandbox on free ports. Returns the process and the address of the web pages.
async fn start(mut command: Command) -> (Child, String) {
    for listener in ["", "SMTP_", "SNS_", "DNS_", "S3_"] {
        command.env(format!("SVC_SANDBOX_{listener}LISTEN"), "127.0.0.1:0");
    }
    command.env("SVC_SANDBOX_S3_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/sandbox-process"));
    let mut sandbox = command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut output = BufReader::new(sandbox.stdout.take().unwrap()).lines();
    let started = output.next_line().await.unwrap().unwrap();
    let (address, _) = started.strip_prefix("listening on http://").unwrap().split_once(',').unwrap();
    // The sandbox writes further lines.
    sandbox.stdout = Some(output.into_inner().into_inner());
    (sandbox, address.to_owned())
}

/// Sends a request. Returns the response.
async fn send(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn too_many_open_files_do_not_end_a_server() {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64 && exec \"$0\"", PROGRAM]);
    let (mut sandbox, address) = start(command).await;
    let mut connections = Vec::new();
    for _ in 0..64 {
        connections.push(TcpStream::connect(&address).await.unwrap());
    }
    let mut errors = BufReader::new(sandbox.stderr.take().unwrap()).lines();
    let error = errors.next_line().await.unwrap().unwrap();
    assert!(error.contains("Too many open files"), "{error}");
    drop(connections);
    let response = send(&address, "GET /dns HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
}

#[tokio::test]
async fn calls_of_the_service_use_no_proxy_of_the_environment() {
    let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut command = Command::new(PROGRAM);
    command.env("SVC_SANDBOX_API_URL", format!("http://{}", service.local_addr().unwrap()));
    command.env("http_proxy", "http://127.0.0.1:9").env_remove("no_proxy").env_remove("NO_PROXY");
    let (_sandbox, address) = start(command).await;
    tokio::spawn(async move {
        let (mut call, _) = service.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            call.read_buf(&mut request).await.unwrap();
        }
        call.write_all(b"HTTP/1.1 200 .\r\nContent-Length: 13\r\n\r\n{\"token\":\"t\"}").await.unwrap();
    });
    let sign_in = "POST /oauth/sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\nsubject=ada";
    let response = send(&address, sign_in).await;
    assert!(response.starts_with("HTTP/1.1 302 "), "{response}");
}

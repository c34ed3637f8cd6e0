//! Readiness probes over HTTP/1.1, without an HTTP client library.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Waits until a `GET` request returns 200.
pub async fn wait_until_ok(address: SocketAddr, path: &str) -> Result<()> {
    const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
    const TOTAL_TIMEOUT: Duration = Duration::from_secs(60);
    let start = Instant::now();
    while !matches!(timeout(REQUEST_TIMEOUT, is_ok(address, path)).await, Ok(Ok(true))) {
        ensure!(start.elapsed() < TOTAL_TIMEOUT, "GET {path} at {address} did not return 200 in time");
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn is_ok(address: SocketAddr, path: &str) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    Ok(status.as_slice() == b"HTTP/1.1 200")
}

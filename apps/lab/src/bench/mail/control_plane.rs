//! A simulated control plane that knows all recipients, and refuses all mails.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub struct ControlPlane {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl ControlPlane {
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A broken connection concerns only one request, which the mail node repeats.
                tokio::spawn(async move { drop(serve(stream).await) });
            }
        });
        Ok(Self { address, task })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves one request. The project of a recipient is named after its domain.
async fn serve(stream: TcpStream) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    stream.read_line(&mut first).await?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        match line.trim_end().to_ascii_lowercase().split_once(':') {
            Some(("content-length", value)) => length = value.trim().parse()?,
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let response = if first.contains("/recipients ") {
        let request: serde_json::Value = serde_json::from_slice(&body)?;
        let project = serde_json::json!({ "project": request.get("domain") }).to_string();
        let length = project.len();
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{project}")
    } else {
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned()
    };
    stream.write_all(response.as_bytes()).await?;
    Ok(stream.shutdown().await?)
}

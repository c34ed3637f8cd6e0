//! As much of HTTP/1.1 as a test's server needs: one request to a connection.

use std::collections::HashMap;
use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use url::form_urlencoded;

/// A request with its parameters, of the query or of a form.
pub(super) struct Request {
    pub method: String,
    pub path: String,
    pub parameters: HashMap<String, String>,
    /// By name in small letters.
    pub headers: HashMap<String, String>,
}

impl Request {
    /// Reads one; `None` when it is no HTTP.
    pub async fn read(stream: &mut TcpStream) -> io::Result<Option<Self>> {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let mut words = line.split_ascii_whitespace();
        let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(None) };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut request = Self {
            method: method.to_owned(),
            path: path.to_owned(),
            parameters: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
            headers: HashMap::new(),
        };
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            let Some((name, value)) = line.split_once(':') else { break };
            request.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = request.headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        request.parameters.extend(form_urlencoded::parse(&body).into_owned());
        Ok(Some(request))
    }

    /// A parameter, empty when it is not there.
    pub fn parameter(&self, name: &str) -> &str {
        self.parameters.get(name).map_or("", String::as_str)
    }
}

/// An answer; the connection ends with it.
pub(super) struct Answer {
    pub status: u16,
    pub content_type: &'static str,
    pub location: Option<String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(body: &serde_json::Value) -> Self {
        Self { status: 200, content_type: "application/json", location: None, body: body.to_string().into_bytes() }
    }

    pub fn text(status: u16, content_type: &'static str, body: &str) -> Self {
        Self { status, content_type, location: None, body: body.as_bytes().to_vec() }
    }

    pub fn redirect(location: String) -> Self {
        Self { location: Some(location), ..Self::text(302, "text/plain", "") }
    }

    /// Writes it, in chunks: its length is told by nothing but its end.
    pub async fn write(self, stream: &mut TcpStream) -> io::Result<()> {
        let location = self.location.map(|location| format!("Location: {location}\r\n")).unwrap_or_default();
        let head = format!(
            "HTTP/1.1 {} .\r\nContent-Type: {}\r\n{location}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
            self.status, self.content_type
        );
        stream.write_all(head.as_bytes()).await?;
        for chunk in self.body.chunks(64 * 1024) {
            stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await?;
            stream.write_all(chunk).await?;
            stream.write_all(b"\r\n").await?;
        }
        stream.write_all(b"0\r\n\r\n").await?;
        stream.shutdown().await
    }
}

//! Request bodies that the server does not read to their end.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::time::{sleep, timeout};

use crate::overload::{connect, read_response};
use crate::support::App;

const HEAD: &[u8] =
    b"POST /v1/orgs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn connection_closes_after_an_early_response_to_a_chunked_body() {
    let app = App::start().await;
    for first in [&b""[..], b"1\r\n{\r\n"] {
        let mut stream = connect(&app).await;
        stream.write_all(&[HEAD, first].concat()).await.unwrap();
        let response = read_response(&mut stream).await.unwrap();
        assert!(response.starts_with("http/1.1 401 ") && response.contains("connection: close"), "{response}");
        let send = async {
            while stream.write_all(b"1\r\n \r\n").await.is_ok() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(Duration::from_secs(10), send).await.expect("the server closes the connection");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_stays_open_after_a_whole_chunked_body() {
    let app = App::start().await;
    let mut stream = connect(&app).await;
    for _ in 0..3 {
        stream.write_all(&[HEAD, b"2\r\n{}\r\n0\r\n\r\n"].concat()).await.unwrap();
        let response = read_response(&mut stream).await.unwrap();
        assert!(response.starts_with("http/1.1 401 ") && !response.contains("connection: close"), "{response}");
    }
}

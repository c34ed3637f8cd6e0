//! A load generator that sends raw requests over keep-alive connections, so that it uses little CPU time compared with
//! the service.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// Returns the bytes of the request with this number.
pub type RequestSource = Arc<dyn Fn(u64) -> Vec<u8> + Send + Sync>;

/// The timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// The maximum number of requests in flight. Requests above this limit are not sent.
const MAX_IN_FLIGHT: usize = 4096;

/// The result of one request.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// When it was scheduled to be sent.
    pub scheduled_at: Instant,
    /// The time from the schedule to the complete response; zero if it was not sent.
    pub latency: Duration,
    /// The status, or 0 without a response.
    pub status: u16,
}

/// A keep-alive connection.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Whether the last response contained `Connection: close`.
    is_last_response: bool,
}

impl Connection {
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4096), is_last_response: false })
    }

    /// Sends a request, reads the complete response and returns its status.
    pub async fn request(&mut self, request: &[u8]) -> io::Result<u16> {
        self.stream.write_all(request).await?;
        self.read_response().await
    }

    /// Sends a part of a request.
    pub async fn send(&mut self, part: &[u8]) -> io::Result<()> {
        self.stream.write_all(part).await
    }

    /// Reads a complete response and returns its status.
    pub async fn read_response(&mut self) -> io::Result<u16> {
        self.buffer.clear();
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.read().await?;
        };
        let head = String::from_utf8_lossy(self.buffer.get(..end).unwrap_or_default()).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        self.is_last_response = head.contains("connection: close");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or_default();
        while self.buffer.len() < end + length {
            self.read().await?;
        }
        Ok(status)
    }

    async fn read(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Builds a request with this token and JSON body. An empty body is omitted.
pub fn request(method: &str, path: &str, token: &str, body: &str) -> Vec<u8> {
    let content = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: svc\r\nAuthorization: Bearer {token}\r\n{content}Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Sends requests over this number of connections, each as soon as the previous response is complete.
pub async fn closed_loop(
    address: SocketAddr,
    requests: &RequestSource,
    connections: u64,
    duration: Duration,
) -> Vec<Sample> {
    let end = Instant::now() + duration;
    let mut pending = JoinSet::new();
    for first in 0..connections {
        let requests = requests.clone();
        pending.spawn(async move {
            let (mut samples, mut wire, mut number) = (Vec::new(), None, first);
            while Instant::now() < end {
                samples.push(measure_request(address, &mut wire, &requests(number), Instant::now()).await);
                number += connections;
            }
            samples
        });
    }
    pending.join_all().await.into_iter().flatten().collect()
}

/// Sends requests at a fixed rate per second, independent of responses.
pub async fn open_loop(address: SocketAddr, requests: &RequestSource, rate: f64, duration: Duration) -> Vec<Sample> {
    let end = Instant::now() + duration;
    open_loop_while(address, requests, rate, move |now| now < end).await
}

/// Sends requests at a fixed rate per second while `continues` returns true.
pub async fn open_loop_while(
    address: SocketAddr,
    requests: &RequestSource,
    rate: f64,
    continues: impl Fn(Instant) -> bool + Send,
) -> Vec<Sample> {
    let (start, idle, permits) =
        (Instant::now(), Arc::<Mutex<Vec<Connection>>>::default(), Arc::new(Semaphore::new(MAX_IN_FLIGHT)));
    let mut pending = JoinSet::new();
    let mut samples = Vec::new();
    for number in 0_u64.. {
        let at = start + Duration::from_secs_f64(number as f64 / rate);
        // Stop at the scheduled end, even if the generator cannot keep up with the rate.
        if !continues(at.max(Instant::now())) {
            break;
        }
        if at > Instant::now() {
            sleep_until(at).await;
        }
        let Ok(permit) = permits.clone().try_acquire_owned() else {
            samples.push(Sample { scheduled_at: at, latency: Duration::ZERO, status: 0 });
            tokio::task::yield_now().await;
            continue;
        };
        let (requests, idle) = (requests.clone(), idle.clone());
        pending.spawn(async move {
            let mut wire = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let sample = measure_request(address, &mut wire, &requests(number), at).await;
            idle.lock().unwrap_or_else(PoisonError::into_inner).extend(wire);
            drop(permit);
            sample
        });
        while let Some(Ok(sample)) = pending.try_join_next() {
            samples.push(sample);
        }
    }
    samples.extend(pending.join_all().await);
    samples
}

/// Sends one request. Drops the connection after a failure.
pub async fn measure_request(
    address: SocketAddr,
    wire: &mut Option<Connection>,
    request: &[u8],
    at: Instant,
) -> Sample {
    let response = async {
        if wire.is_none() {
            *wire = Some(Connection::connect(address).await?);
        }
        match wire {
            Some(wire) => wire.request(request).await,
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    };
    let status = timeout(REQUEST_TIMEOUT, response).await.ok().and_then(Result::ok).unwrap_or_default();
    if status == 0 || wire.as_ref().is_some_and(|wire| wire.is_last_response) {
        *wire = None;
    }
    Sample { scheduled_at: at, latency: at.elapsed(), status }
}

/// Returns a latency percentile of the samples that `which` selects, in milliseconds.
pub fn percentile(samples: &[Sample], percent: usize, which: impl Fn(&Sample) -> bool) -> f64 {
    let mut all: Vec<f64> =
        samples.iter().filter(|sample| which(sample)).map(|sample| sample.latency.as_secs_f64() * 1e3).collect();
    all.sort_by(f64::total_cmp);
    crate::bench::run::percentile(&all, percent)
}

/// Counts the samples whose status `which` selects.
pub fn count_status(samples: &[Sample], which: impl Fn(u16) -> bool) -> usize {
    samples.iter().filter(|sample| which(sample.status)).count()
}

/// Returns whether the status is 2xx.
pub const fn is_success(status: u16) -> bool {
    matches!(status, 200..=299)
}

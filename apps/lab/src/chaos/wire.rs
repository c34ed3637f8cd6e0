//! Requests as bytes over connections that stay open: what asks must cost little beside what answers.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// The bytes of the request of this number.
pub type Ask = Arc<dyn Fn(u64) -> Vec<u8> + Send + Sync>;

/// Who waits longer has given up.
const PATIENCE: Duration = Duration::from_secs(15);

/// The most requests that are under way at once: those beyond it are not even sent.
const AT_ONCE: usize = 4096;

/// One request and what came of it.
#[derive(Debug, Clone, Copy)]
pub struct Shot {
    /// When it was to be sent.
    pub at: Instant,
    /// Until the whole answer was there, counted from then.
    pub took: Duration,
    /// 0 without an answer.
    pub status: u16,
}

/// A connection.
pub struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// The answer said that it is the last one.
    is_over: bool,
}

impl Wire {
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4096), is_over: false })
    }

    /// Sends a request and reads the whole answer. Gives its status.
    pub async fn ask(&mut self, request: &[u8]) -> io::Result<u16> {
        self.stream.write_all(request).await?;
        self.answer().await
    }

    /// Sends what may be a part of a request.
    pub async fn send(&mut self, part: &[u8]) -> io::Result<()> {
        self.stream.write_all(part).await
    }

    /// Reads the whole answer. Gives its status.
    pub async fn answer(&mut self) -> io::Result<u16> {
        self.buffer.clear();
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.read().await?;
        };
        let head = String::from_utf8_lossy(self.buffer.get(..end).unwrap_or_default()).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        self.is_over = head.contains("connection: close");
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

/// A `GET`, or with a body a `POST` of JSON, by whoever has this token.
pub fn request(method: &str, path: &str, token: &str, body: &str) -> Vec<u8> {
    let content = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: svc\r\nAuthorization: Bearer {token}\r\n{content}Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Asks over so many connections, each as fast as answers come.
pub async fn closed(address: SocketAddr, ask: &Ask, connections: u64, length: Duration) -> Vec<Shot> {
    let end = Instant::now() + length;
    let mut asking = JoinSet::new();
    for first in 0..connections {
        let ask = ask.clone();
        asking.spawn(async move {
            let (mut shots, mut wire, mut number) = (Vec::new(), None, first);
            while Instant::now() < end {
                shots.push(shoot(address, &mut wire, &ask(number), Instant::now()).await);
                number += connections;
            }
            shots
        });
    }
    asking.join_all().await.into_iter().flatten().collect()
}

/// Asks so often a second, whether answers come or not.
pub async fn open(address: SocketAddr, ask: &Ask, rate: f64, length: Duration) -> Vec<Shot> {
    let end = Instant::now() + length;
    open_while(address, ask, rate, move |now| now < end).await
}

/// The same, for as long as `goes_on` says so.
pub async fn open_while(
    address: SocketAddr,
    ask: &Ask,
    rate: f64,
    goes_on: impl Fn(Instant) -> bool + Send,
) -> Vec<Shot> {
    let (start, idle, room) = (Instant::now(), Arc::<Mutex<Vec<Wire>>>::default(), Arc::new(Semaphore::new(AT_ONCE)));
    let mut asking = JoinSet::new();
    let mut shots = Vec::new();
    for number in 0_u64.. {
        let at = start + Duration::from_secs_f64(number as f64 / rate);
        // Who cannot keep up does not go on for longer.
        if !goes_on(at.max(Instant::now())) {
            break;
        }
        if at > Instant::now() {
            sleep_until(at).await;
        }
        let Ok(place) = room.clone().try_acquire_owned() else {
            shots.push(Shot { at, took: Duration::ZERO, status: 0 });
            tokio::task::yield_now().await;
            continue;
        };
        let (ask, idle) = (ask.clone(), idle.clone());
        asking.spawn(async move {
            let mut wire = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let shot = shoot(address, &mut wire, &ask(number), at).await;
            idle.lock().unwrap_or_else(PoisonError::into_inner).extend(wire);
            drop(place);
            shot
        });
        while let Some(Ok(shot)) = asking.try_join_next() {
            shots.push(shot);
        }
    }
    shots.extend(asking.join_all().await);
    shots
}

/// Asks once. A connection that broke is not used again.
pub async fn shoot(address: SocketAddr, wire: &mut Option<Wire>, request: &[u8], at: Instant) -> Shot {
    let asked = async {
        if wire.is_none() {
            *wire = Some(Wire::connect(address).await?);
        }
        match wire {
            Some(wire) => wire.ask(request).await,
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    };
    let status = timeout(PATIENCE, asked).await.ok().and_then(Result::ok).unwrap_or_default();
    if status == 0 || wire.as_ref().is_some_and(|wire| wire.is_over) {
        *wire = None;
    }
    Shot { at, took: at.elapsed(), status }
}

/// Of those that `which` picks, the time that so many of a hundred do not exceed, in milliseconds.
pub fn quantile(shots: &[Shot], of_hundred: usize, which: impl Fn(&Shot) -> bool) -> f64 {
    let mut all: Vec<f64> = shots.iter().filter(|shot| which(shot)).map(|shot| shot.took.as_secs_f64() * 1e3).collect();
    all.sort_by(f64::total_cmp);
    crate::bench::run::quantile(&all, of_hundred)
}

/// How many of them are what `which` picks.
pub fn count(shots: &[Shot], which: impl Fn(u16) -> bool) -> usize {
    shots.iter().filter(|shot| which(shot.status)).count()
}

/// Whether an answer is what was asked for.
pub const fn is_good(status: u16) -> bool {
    matches!(status, 200..=299)
}

//! Looking after a process that runs.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::param::{clock_ticks_per_second, page_size};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::sleep;

use super::config::Config;
use super::folder::Socket;
use super::process::{Ending, Process};

/// How long after its last request a process is watched closely.
const RECENT: Duration = Duration::from_secs(10);
const MEMORY_EVERY: Duration = Duration::from_millis(50);
const IDLE_EVERY: Duration = Duration::from_secs(1);
const PROBE_EVERY: Duration = Duration::from_millis(500);

/// Without an answer for this long, while it computes …
const STUCK: Duration = Duration::from_secs(2);
/// … of which it was given at least this much of a processor: on a machine that is too busy, the processes that wait
/// for their turn are not to blame.
const COMPUTED: Duration = Duration::from_millis(500);
/// Without an answer for this long, whatever it does.
const LOST: Duration = Duration::from_secs(10);

/// Watches until the process ends.
pub async fn watch(process: Arc<Process>, config: Config) {
    tokio::select! {
        _ = process.ended() => {}
        () = resources(&process, &config) => {}
        () = answers(&process) => {}
    }
}

async fn resources(process: &Process, config: &Config) {
    loop {
        match resident(process.pid) {
            Some(bytes) if bytes > config.memory => {
                let mebibytes = config.memory >> 20;
                return process.kill(Ending::Crashed(format!("It used more than {mebibytes} MiB of memory.")));
            }
            _ => process.end_when_idle(config.idle),
        }
        sleep(if process.was_used_within(RECENT) { MEMORY_EVERY } else { IDLE_EVERY.min(config.idle) }).await;
    }
}

async fn answers(process: &Process) {
    loop {
        sleep(PROBE_EVERY).await;
        if process.was_used_within(RECENT) && !answers_in_time(process).await {
            return process.kill(Ending::Crashed(
                "It did not answer for 2 seconds: some code computes without end, or for too long.".to_owned(),
            ));
        }
    }
}

async fn answers_in_time(process: &Process) -> bool {
    let (began, computed) = (Instant::now(), computed(process.pid));
    let answer = async {
        while process.probe().await.is_err() {
            sleep(Duration::from_millis(100)).await
        }
    };
    let mut answer = std::pin::pin!(answer);
    loop {
        tokio::select! {
            () = &mut answer => return true,
            () = sleep(Duration::from_millis(100)) => {}
        }
        let since = self::computed(process.pid).saturating_sub(computed);
        if began.elapsed() >= LOST || (began.elapsed() >= STUCK && since >= COMPUTED) {
            return false;
        }
    }
}

/// Asks the worker that is in the process for this.
pub async fn probe(socket: &Socket) -> io::Result<()> {
    let mut stream = socket.connect().await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n").await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    if status == *b"HTTP/1.1 200" { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// The memory that it has in use, in bytes; `None` when it is gone.
fn resident(pid: u32) -> Option<u64> {
    let pages = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = pages.split(' ').nth(1)?.parse().ok()?;
    Some(pages * page_size() as u64)
}

/// The time that processors have spent on it; nothing when it is gone.
fn computed(pid: u32) -> Duration {
    let ticks = || -> Option<u64> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the program's name, in brackets, and may hold anything.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
        Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
    };
    Duration::from_millis(ticks().unwrap_or_default() * 1000 / clock_ticks_per_second())
}

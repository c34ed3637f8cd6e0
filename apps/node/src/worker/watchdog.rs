//! The watchdog of a running process: memory, idle time and responsiveness.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::param::{clock_ticks_per_second, page_size};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::sleep;

use super::budget::MemoryBudget;
use super::config::Config;
use super::folder::Socket;
use super::process::{ExitReason, Process};

/// How long a process counts as in use after its last request.
const RECENT_USE: Duration = Duration::from_secs(10);
const MEMORY_CHECK_INTERVAL: Duration = Duration::from_millis(50);
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// The probe timeout of a process that has used at least [`STUCK_CPU_TIME`] since the probe was sent.
const STUCK_TIMEOUT: Duration = Duration::from_secs(2);
/// If a process used less CPU time, an overloaded machine may have caused the delay.
const STUCK_CPU_TIME: Duration = Duration::from_millis(1500);
/// The probe timeout of every process, regardless of its CPU time.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// The memory of a process in bytes.
struct Memory {
    resident: u64,
    /// The part of the resident memory that belongs to no file, and that the process does not share.
    private: u64,
}

/// Watches the process until it exits.
pub async fn watch(process: Arc<Process>, config: Config, budget: Arc<MemoryBudget>) {
    tokio::select! {
        _ = process.wait_for_exit() => process.memory_share.release(),
        () = watch_resources(&process, &config, &budget) => {}
        () = watch_responses(&process) => {}
    }
}

async fn watch_resources(process: &Process, config: &Config, budget: &MemoryBudget) {
    loop {
        if let Some(Memory { resident, private }) = memory_of(process.pid) {
            if resident > config.memory {
                return process.kill(ExitReason::exceeded_memory(config.memory));
            }
            process.memory_share.set(private);
            budget.enforce();
        }
        process.stop_if_idle(config.idle);
        sleep(if process.was_used_within(RECENT_USE) {
            MEMORY_CHECK_INTERVAL
        } else {
            IDLE_CHECK_INTERVAL.min(config.idle)
        })
        .await;
    }
}

async fn watch_responses(process: &Process) {
    loop {
        sleep(PROBE_INTERVAL).await;
        if process.was_used_within(RECENT_USE) && !responds_in_time(process).await {
            return process.kill(ExitReason::Crashed(
                "The worker did not respond for 2 seconds. Its code has an endless loop or a long computation."
                    .to_owned(),
            ));
        }
    }
}

async fn responds_in_time(process: &Process) -> bool {
    let (started_at, cpu_before) = (Instant::now(), cpu_time(process.pid));
    let response = async {
        while process.probe().await.is_err() {
            sleep(Duration::from_millis(100)).await
        }
    };
    let mut response = std::pin::pin!(response);
    loop {
        tokio::select! {
            () = &mut response => return true,
            () = sleep(Duration::from_millis(100)) => {}
        }
        let cpu_used = cpu_time(process.pid).saturating_sub(cpu_before);
        if started_at.elapsed() >= PROBE_TIMEOUT
            || (started_at.elapsed() >= STUCK_TIMEOUT && cpu_used >= STUCK_CPU_TIME)
        {
            return false;
        }
    }
}

/// Sends a request to the probe worker of the process.
pub async fn probe(socket: &Socket) -> io::Result<()> {
    let mut stream = socket.connect().await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n").await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    if status == *b"HTTP/1.1 200" { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Returns the memory of the process; `None` if it has exited.
fn memory_of(pid: u32) -> Option<Memory> {
    let pages = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut pages = pages.split(' ').skip(1);
    let mut next = || Some(pages.next()?.parse::<u64>().ok()? * page_size() as u64);
    let (resident, shared) = (next()?, next()?);
    Some(Memory { resident, private: resident.saturating_sub(shared) })
}

/// Returns the CPU time of the process; zero if it has exited.
fn cpu_time(pid: u32) -> Duration {
    let ticks = || -> Option<u64> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the program's name in parentheses, which may contain any character.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
        Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
    };
    Duration::from_millis(ticks().unwrap_or_default() * 1000 / clock_ticks_per_second())
}

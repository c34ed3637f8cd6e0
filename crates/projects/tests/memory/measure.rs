//! What this process took while something ran.

use std::time::Duration;

/// The growth of this process's resident memory to its peak while this runs, in bytes.
pub async fn peak_of<T>(run: impl Future<Output = T>) -> u64 {
    // The peak begins anew at what is resident now (proc(5)).
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS:");
    run.await;
    status("VmHWM:").saturating_sub(before)
}

/// The time that this process has been computing for: a busy machine does not add to it.
pub fn computed() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // Behind the name, which is in brackets: user and system time, in hundredths of a second (proc(5)).
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks: u64 = fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

//! Measures the memory and the CPU time of this process.

use std::time::Duration;

/// Returns how much the resident memory of this process grows while `run` runs, in bytes.
pub async fn peak_of<T>(run: impl Future<Output = T>) -> u64 {
    // Reset the peak to the current resident memory (proc(5)).
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS:");
    run.await;
    status("VmHWM:").saturating_sub(before)
}

/// Returns the CPU time of this process, which does not depend on the load of the machine.
pub fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // User and system time follow the name in parentheses, in hundredths of a second (proc(5)).
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks: u64 = fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

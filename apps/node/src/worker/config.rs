//! The configuration of workers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use settings::Networks;

/// The limit of threads of a process. `workerd` has about ten.
pub const MAX_THREADS: u64 = 64;

/// The configuration of workers.
#[derive(Debug, Clone)]
pub struct Config {
    /// The program `workerd`.
    pub workerd: PathBuf,
    /// The path of `svc-node`, which starts `workerd`; see [`super::launch`].
    pub launcher: PathBuf,
    /// The memory limit of a process in bytes.
    pub memory: u64,
    /// The limit on the memory of all processes in bytes.
    pub total_memory: u64,
    /// The user ids of worker processes, if the node runs as root.
    pub uids: UidRange,
    /// A process without requests for this long is stopped.
    pub idle: Duration,
    /// A process without requests for this long may be stopped to free memory. Until then, its code may still work
    /// after a response (`waitUntil`).
    pub min_idle: Duration,
    /// The limit of requests and WebSockets of a process in flight. Each takes two of the node's file descriptors. One
    /// client may use a quarter of it.
    pub max_in_flight: usize,
    /// The limit of connections of the processes of one owner to the bindings. Each takes one of the node's file
    /// descriptors. One process may use half of it.
    pub max_connections: usize,
    /// The timeout until a worker starts to respond to a visitor. It begins again with each chunk of the request body
    /// that the worker takes.
    pub response_timeout: Duration,
    /// The timeout of a call of `email()`, including the download of the mail. It does not include the start of the
    /// process.
    pub email_timeout: Duration,
    /// The connections of workers.
    pub egress: EgressConfig,
}

/// The configuration of the connections of workers.
#[derive(Debug, Clone, Default)]
pub struct EgressConfig {
    /// Networks that workers may connect to, in addition to public addresses.
    pub allow: Networks,
    /// Networks that workers may not connect to in any case.
    pub deny: Networks,
    /// The name server; `None` for those of the system.
    pub resolver: Option<SocketAddr>,
}

/// A range of user ids, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UidRange {
    /// The lowest id.
    pub first: u32,
    /// The highest id.
    pub last: u32,
}

impl FromStr for UidRange {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "it must be a range of user ids such as 200000-265535, from 1000";
        let (first, last) = text.split_once('-').ok_or(EXPECTED)?;
        let range = Self { first: first.parse().map_err(|_| EXPECTED)?, last: last.parse().map_err(|_| EXPECTED)? };
        // The kernel reserves the highest number as "no id".
        if range.first >= 1000 && range.first <= range.last && range.last < u32::MAX {
            Ok(range)
        } else {
            Err(EXPECTED)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_ranges_are_ordered_and_exclude_system_users() {
        assert_eq!("200000-265535".parse(), Ok(UidRange { first: 200_000, last: 265_535 }));
        assert!("5000-5000".parse::<UidRange>().is_ok());
        for text in ["", "1000", "0-5000", "999-5000", "5001-5000", "5000-4294967295", "-1-5000", "5000-6000-7000"] {
            assert!(text.parse::<UidRange>().is_err(), "{text}");
        }
    }
}

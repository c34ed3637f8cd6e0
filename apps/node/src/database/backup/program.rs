//! The client programs of Postgres: their environment, their output and their end.

use std::env;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio, id};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;

use super::launch::ARGUMENT;
use crate::database::config::Programs;
use crate::database::server::{Credentials, Tls};

/// The number of bytes of messages that are kept. The first messages show the cause, so the rest is dropped.
const MAX_MESSAGES: usize = 1024 * 1024;
/// The characters of messages in a log line.
const MAX_LOGGED: usize = 2000;
/// The files with the root certificates of the system.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// The first words of the error for a memory block that is too large.
const INVALID_SIZE: &str = "invalid memory alloc request size ";
/// The sizes of the memory blocks that Postgres requests for a row that is too large. Postgres refuses them from 1 GiB
/// on. Any other size is that of a damaged value.
const TOO_LARGE: RangeInclusive<u64> = 0x3fff_ffff..=8 << 30;
/// The longest wait for the end of a program that has closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A running program. It is killed on drop, and when the node is killed.
pub struct Program {
    pub child: Child,
    messages: JoinHandle<String>,
}

/// The exit status and the messages of a program.
pub struct Finished {
    pub status: ExitStatus,
    /// The text of the program's standard error. It can contain text of the tenant.
    pub messages: String,
}

/// Returns a command without a login. It has the environment that all client programs share. The node's own environment
/// is not inherited, because it can configure libpq.
pub fn command(programs: &Programs, program: &Path) -> Command {
    let mut command = Command::new(&programs.launcher);
    let memory = programs.limits.memory_bytes.to_string();
    command.arg0("svc-node").arg(ARGUMENT).arg(id().to_string()).arg(memory).arg(program);
    command.env_clear().env("LC_ALL", "C");
    // The wrapper scripts of Debian need `PATH`.
    command.envs(env::var_os("PATH").map(|path| ("PATH", path)));
    // With a host, these scripts run the newest installed version, and otherwise that of the machine's default cluster.
    // So the programs without a login have the same version as those with one.
    command.env("PGHOST", "localhost");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Adds the login to the environment of a program. Only the node's user can read it. `role` is the role that the
/// session acts as.
pub fn set_login(command: &mut Command, credentials: &Credentials, role: &str) {
    let address = &credentials.address;
    command.env("PGHOST", &address.host).env("PGPORT", address.port.to_string());
    command.env("PGDATABASE", &credentials.database).env("PGUSER", &credentials.user);
    command.env("PGPASSWORD", credentials.password.reveal());
    command.env("PGPASSFILE", "/dev/null").env("PGSERVICEFILE", "/dev/null");
    command.env("PGAPPNAME", "svc-node").env("PGCONNECT_TIMEOUT", "10").env("PGGSSENCMODE", "disable");
    command.env("PGOPTIONS", format!("-c role={role}"));
    match &address.tls {
        Tls::Off => command.env("PGSSLMODE", "disable"),
        Tls::Verified { root, .. } => {
            command.env("PGSSLMODE", "verify-full").env("PGSSLROOTCERT", root.clone().unwrap_or_else(system_roots))
        }
    };
}

fn system_roots() -> PathBuf {
    let found = SYSTEM_ROOTS.iter().map(PathBuf::from).find(|file| file.is_file());
    // Newer versions of libpq accept this keyword for the system's certificates.
    found.unwrap_or_else(|| PathBuf::from("system"))
}

impl Program {
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        let mut child = command.spawn()?;
        let messages = tokio::spawn(collect(child.stderr.take()));
        Ok(Self { child, messages })
    }

    /// Waits for the end of the program.
    pub async fn finish(mut self) -> io::Result<Finished> {
        let status = self.child.wait().await?;
        let messages = self.messages.await.unwrap_or_default();
        Ok(Finished { status, messages })
    }

    /// Waits for the end of a program that has closed its output.
    pub async fn finish_soon(self) -> io::Result<Finished> {
        tokio::time::timeout(EXIT_TIMEOUT, self.finish()).await?
    }
}

impl Finished {
    /// Returns whether `pg_restore` reached the end of the archive and [`Self::errors`] returns all its errors.
    pub fn has_only_ignored_errors(&self) -> bool {
        self.status.code() == Some(1)
            && self.messages.len() < MAX_MESSAGES
            && self.messages.lines().any(|line| line.contains("warning: errors ignored on restore: "))
    }

    /// Returns the beginning of the messages, for the log.
    pub fn excerpt(&self) -> String {
        self.messages.chars().take(MAX_LOGGED).collect()
    }

    /// Returns whether the program itself ran out of memory. Lines with `ERROR:` are errors of the server.
    pub fn is_out_of_memory(&self) -> bool {
        let is_own = |line: &&str| !line.contains("ERROR:");
        self.messages.lines().filter(is_own).any(|line| line.to_ascii_lowercase().contains("out of memory"))
    }

    /// Returns whether Postgres cannot send a row, because its text exceeds the largest memory block of Postgres.
    pub fn has_too_large_row(&self) -> bool {
        self.refused_size().is_some_and(|size| TOO_LARGE.contains(&size))
            || self.messages.contains("Cannot enlarge string buffer containing ")
    }

    /// Returns whether Postgres read a value whose length is damaged.
    pub fn has_damaged_value(&self) -> bool {
        self.refused_size().is_some_and(|size| !TOO_LARGE.contains(&size))
    }

    /// Returns the size of the memory block that Postgres refused, if this is its first error.
    fn refused_size(&self) -> Option<u64> {
        self.server_error()?.strip_prefix(INVALID_SIZE)?.parse().ok()
    }

    /// Returns whether another session, or the shutdown of Postgres, ended the session of the program.
    pub fn was_terminated(&self) -> bool {
        self.messages.contains("FATAL:  terminating connection due to administrator command")
    }

    /// Returns the messages of errors.
    pub fn errors(&self) -> impl Iterator<Item = &str> {
        let is_error = |line: &&str| line.split_once(": ").is_some_and(|(_, rest)| rest.starts_with("error: "));
        self.messages.lines().filter(is_error)
    }

    /// Returns the first error of the server, for the project's members: without the addresses of servers.
    pub fn server_error(&self) -> Option<String> {
        let error = self.messages.lines().find_map(|line| Some(line.split_once("ERROR:")?.1.trim()));
        Some(error?.chars().filter(|character| !character.is_control()).take(300).collect())
    }
}

/// Reads all messages, so that the program never blocks, and returns the beginning.
async fn collect(stderr: Option<ChildStderr>) -> String {
    let Some(stderr) = stderr else { return String::new() };
    String::from_utf8_lossy(&read_start(stderr, MAX_MESSAGES).await).into_owned()
}

async fn read_start(mut reader: impl AsyncRead + Unpin, limit: usize) -> Vec<u8> {
    let (mut start, mut buffer) = (Vec::new(), vec![0; 8 * 1024]);
    while let Ok(length) = reader.read(&mut buffer).await
        && length > 0
    {
        let room = limit.saturating_sub(start.len());
        start.extend(buffer.iter().take(length.min(room)));
    }
    start
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn rows_that_postgres_cannot_send_damaged_values_and_ended_sessions_are_recognized() {
        let finished = |messages: &str| Finished { status: ExitStatus::from_raw(256), messages: messages.to_owned() };
        let copy = "pg_dump: error: Dumping the contents of table \"t\" failed: PQgetResult() failed.\n\
             pg_dump: detail: Error message from server: ";
        for (message, is_too_large, was_terminated, error) in [
            (
                "ERROR:  invalid memory alloc request size 1073741825",
                true,
                false,
                Some("invalid memory alloc request size 1073741825"),
            ),
            (
                "ERROR:  invalid memory alloc request size 18446744073709551613",
                false,
                false,
                Some("invalid memory alloc request size 18446744073709551613"),
            ),
            (
                "ERROR:  out of memory\nDETAIL:  Cannot enlarge string buffer containing 1073741822 bytes by 1 more bytes.",
                true,
                false,
                Some("out of memory"),
            ),
            ("ERROR:  out of memory\nDETAIL:  Failed on request of size 8192.", false, false, Some("out of memory")),
            ("FATAL:  terminating connection due to administrator command", false, true, None),
        ] {
            let finished =
                finished(&format!("{copy}{message}\npg_dump: detail: Command was: COPY public.t TO stdout;"));
            assert_eq!((finished.has_too_large_row(), finished.was_terminated()), (is_too_large, was_terminated));
            assert_eq!(finished.has_damaged_value(), message.ends_with("size 18446744073709551613"), "{message}");
            assert!(!finished.is_out_of_memory(), "{message}");
            assert_eq!(finished.server_error().as_deref(), error);
        }
    }
}

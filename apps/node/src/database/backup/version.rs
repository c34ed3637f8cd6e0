//! The versions of `pg_restore` and of the server, which must be equal. `pg_restore` 17 and later begin with a setting
//! that older servers reject, so every restore fails.

use std::io;
use std::process::Stdio;
use std::sync::PoisonError;
use std::time::Duration;

use daemon::error_chain;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::Service;
use super::error::Result;
use super::program::{Program, command};

const SERVER: &str = "SELECT current_setting('server_version_num')::integer / 10000";
/// The longest time of a comparison.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest number of bytes of the output that is read.
const MAX_OUTPUT: u64 = 1024;

impl Service {
    /// Compares the major versions. If they differ, logs it, and reports it as the error of all backups.
    pub(super) async fn check_version(&self) {
        let versions = timeout(TIMEOUT, self.versions()).await;
        match versions.unwrap_or_else(|elapsed| Err(io::Error::from(elapsed).into())) {
            Ok((Some(programs), server)) if programs != server => {
                let error = format!(
                    "pg_restore has version {programs} and Postgres {server}: backups may not be restorable on this node"
                );
                tracing::error!(error, "set SVC_NODE_PG_BIN to the client programs of the server's major version");
                self.set_version_error(Some(format!("{error}. The platform still makes backups")));
            }
            Ok((Some(_), _)) => self.set_version_error(None),
            Ok((None, _)) => tracing::warn!("failed to read the version of pg_restore"),
            Err(error) => {
                let error = error_chain(error);
                tracing::warn!(error, "failed to compare the versions of pg_restore and Postgres");
            }
        }
    }

    fn set_version_error(&self, error: Option<String>) {
        *self.version_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    /// Returns the error of the last comparison.
    pub(super) fn version_error(&self) -> Option<String> {
        self.version_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the major versions of `pg_restore`, if it prints one, and of the server.
    async fn versions(&self) -> Result<(Option<i32>, i32)> {
        let server = self.connect().await?.query_one(SERVER, &[]).await?.try_get(0)?;
        let mut pg_restore = command(&self.programs, &self.programs.pg_restore);
        pg_restore.arg("--version").stdout(Stdio::piped());
        let mut program = Program::spawn(pg_restore)?;
        let mut version = String::new();
        if let Some(stdout) = program.child.stdout.take() {
            stdout.take(MAX_OUTPUT).read_to_string(&mut version).await?;
        }
        program.finish_soon().await?;
        Ok((major_version(&version), server))
    }
}

/// Parses the output of a program with `--version`.
fn major_version(output: &str) -> Option<i32> {
    let (_, version) = output.split_once("(PostgreSQL) ")?;
    version.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn major_version_is_the_first_number() {
        for (output, version) in [
            ("pg_restore (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n", Some(15)),
            ("pg_restore (PostgreSQL) 17beta1\n", Some(17)),
            ("pg_restore (PostgreSQL) devel\n", None),
            ("", None),
        ] {
            assert_eq!(major_version(output), version, "{output}");
        }
    }
}

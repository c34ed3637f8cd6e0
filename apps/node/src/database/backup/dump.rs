//! Dumping a database into the store.

use std::process::Stdio;
use std::time::Duration;

use protocol::GenerationRef;
use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStdout;
use tokio::time::timeout;

use super::Service;
use super::error::{BackupError, Result, out_of_memory};
use super::program::{Finished, Program, command, set_login};
use crate::database::server::Credentials;
use crate::database::{names, usage};

/// The longest wait of `pg_dump` for the lock of a table.
const LOCK_TIMEOUT: &str = "--lock-wait-timeout=60s";
/// The longest time without output. `pg_dump` writes nothing while it reads the catalogs and waits for locks.
const STALL_TIMEOUT: Duration = Duration::from_secs(15 * 60);
const BUFFER: usize = 128 * 1024;
/// The reason of a failure without an error of the server.
const NO_CONNECTION: &str = "the connection failed or ended";
/// The reason of a failure when Postgres ended the session. The watchdog ends a session with too many locks, and a dump
/// holds a lock for each table.
const TERMINATED: &str = "Postgres ended the session: the server stopped, or the database has too many tables";
/// The reason of a failure that no repetition can avoid.
const TOO_LARGE_ROW: &str = "the database contains a row that is too large for pg_dump: Postgres sends at most 1 GiB of \
     text for each row, and bytea takes twice its size";
/// The sessions of app user auth are not backed up, because a restore ends them.
const WITHOUT_SESSIONS: &str = "--exclude-table-data=svc_auth.sessions";

impl Service {
    /// Streams a dump into the store. If it fails, no object remains.
    pub(super) async fn dump(&self, credentials: &Credentials, key: &str) -> Result<GenerationRef> {
        let limit = self.programs.limits.dump_time;
        let too_long = |_| BackupError::Limit(format!("pg_dump takes longer than {} s", limit.as_secs()));
        timeout(limit, self.stream(credentials, key)).await.map_err(too_long)?
    }

    /// `pg_dump` acts as its login, not as the owner. The login inherits the owner's privileges and bypasses row
    /// security. The owner would be subject to the policies of tables with `FORCE ROW LEVEL SECURITY`.
    async fn stream(&self, credentials: &Credentials, key: &str) -> Result<GenerationRef> {
        let mut pg_dump = command(&self.programs, &self.programs.pg_dump);
        pg_dump.args(["--format=custom", "--no-password", LOCK_TIMEOUT]).stdout(Stdio::piped());
        let has_auth = has_auth(credentials).await.map_err(|error| {
            tracing::warn!(key, error = format!("{error:#}"), "failed to connect for a dump");
            BackupError::Dump(NO_CONNECTION.to_owned())
        })?;
        if has_auth {
            pg_dump.arg(WITHOUT_SESSIONS);
        }
        set_login(&mut pg_dump, credentials, "none");
        let usage = usage::find(&self.connect().await?, &credentials.database).await?.unwrap_or_default();
        let mut program = Program::spawn(pg_dump)?;
        let mut writer = self.archives.writer(key, usage.bytes);
        let mut stdout = program.child.stdout.take();
        let mut buffer = vec![0; BUFFER];
        loop {
            let length = read(&mut stdout, &mut buffer).await?;
            let Some(chunk) = buffer.get(..length).filter(|chunk| !chunk.is_empty()) else { break };
            writer.write(chunk).await?;
        }
        let finished = program.finish_soon().await?;
        if !finished.status.success() {
            writer.abort().await;
            tracing::warn!(key, status = %finished.status, messages = finished.excerpt(), "pg_dump failed");
            return Err(self.classify(key, &finished));
        }
        writer.finish().await
    }

    /// Classifies the failure of `pg_dump`.
    fn classify(&self, key: &str, finished: &Finished) -> BackupError {
        if finished.is_out_of_memory() {
            return out_of_memory("pg_dump", self.programs.limits.memory_bytes);
        }
        if finished.has_too_large_row() {
            return BackupError::Limit(TOO_LARGE_ROW.to_owned());
        }
        if finished.has_damaged_value() {
            tracing::error!(key, "pg_dump cannot read a value: a file of the database is damaged");
        }
        match finished.server_error() {
            Some(error) => BackupError::Server(error),
            None if finished.was_terminated() => BackupError::Server(TERMINATED.to_owned()),
            None => BackupError::Dump(NO_CONNECTION.to_owned()),
        }
    }
}

/// Returns whether the schema `svc_auth` belongs to app user auth. A project can have its own schema of this name.
async fn has_auth(credentials: &Credentials) -> anyhow::Result<bool> {
    const HAS_AUTH: &str =
        "SELECT count(*) > 0 FROM pg_namespace WHERE nspname = 'svc_auth' AND pg_get_userbyid(nspowner)::text = $1";
    let owner = names::auth(&credentials.database);
    let client = credentials.connect_to_read().await?;
    Ok(client.query_one(HAS_AUTH, &[&owner]).await?.try_get(0)?)
}

async fn read(stdout: &mut Option<ChildStdout>, buffer: &mut [u8]) -> Result<usize> {
    let Some(stdout) = stdout else { return Ok(0) };
    let stalled = |_| BackupError::Limit("pg_dump wrote nothing for 15 minutes".to_owned());
    Ok(timeout(STALL_TIMEOUT, stdout.read(buffer)).await.map_err(stalled)??)
}

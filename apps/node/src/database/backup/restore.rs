//! Restoring a generation into an empty database.
//!
//! The archive is copied to the node's disk first, so that its digest is checked before the first statement. All
//! statements run as the login of restores ([`LoadTarget`]), which has no privileges outside the database, because they
//! execute functions of the tenant. The entries are restored in five steps ([`Contents`]), each in the order of
//! `pg_restore`. They are not one transaction, because a transaction holds a lock for each table and large object; the
//! database is dropped after a failure.
//!
//! The first step restores the schema of app user auth, with the privileges of its owner. The login loses these
//! privileges before the next step, which executes functions of the tenant.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use protocol::GenerationRef;
use sha256::Digester;
use tokio::fs;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::Service;
use super::contents::Contents;
use super::error::{BackupError, Result, out_of_memory};
use super::program::{Finished, Program, command, set_login};
use super::spool::Spool;
use crate::database::load::LoadTarget;

/// The shortest timeout of a step; `MIN_RATE` gives large archives a longer one. A step needs a timeout because it
/// executes functions of the tenant.
const MIN_STEP_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// The slowest expected restore in bytes per second: the timeout of a large archive is its size divided by this rate.
const MIN_RATE: u64 = 512 * 1024;
/// The longest table of contents that is read.
const MAX_CONTENTS: u64 = 256 * 1024 * 1024;

/// The errors that a step tolerates: the restored data is complete without the entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tolerate {
    Nothing,
    /// The entry contains a role that does not exist, the comment of a policy for such a role, or privileges in the
    /// name of another role.
    MissingPrivileges,
    FailedQueries,
}

impl Service {
    /// Restores a generation. A failure leaves an incomplete database.
    pub(super) async fn restore(&self, generation: &GenerationRef, target: &LoadTarget) -> Result<()> {
        let spool = Spool::create(&self.spool)?;
        let archive = spool.file("archive");
        self.copy(generation, &archive).await?;
        let contents = Contents::parse(&self.list(&archive).await?);
        let opened = target.begin(contents.owns_public).await.map_err(BackupError::Connect)?;
        let step_timeout = MIN_STEP_TIMEOUT.max(Duration::from_secs(generation.size_bytes / MIN_RATE));
        let too_long = |_| BackupError::Rejected("it takes too long".to_owned());
        let (owner, auth) = (target.owner(), target.auth());
        if !contents.auth.is_empty() {
            target.begin_auth().await.map_err(BackupError::Connect)?;
            let list = spool.file("auth");
            let step = self.run_step(target, &auth, (&archive, &list), &contents.auth, Tolerate::Nothing);
            timeout(step_timeout, step).await.map_err(too_long)??;
        }
        // A previous restore may have been interrupted.
        target.end_auth().await.map_err(BackupError::Connect)?;
        for (name, entries, tolerate) in [
            ("objects", contents.objects, Tolerate::Nothing),
            ("grants", contents.grants, Tolerate::MissingPrivileges),
            ("views", contents.views, Tolerate::FailedQueries),
        ] {
            let list = spool.file(name);
            let step = self.run_step(target, &owner, (&archive, &list), &entries, tolerate);
            timeout(step_timeout, step).await.map_err(too_long)??;
        }
        // No entry of this step executes tenant code.
        let list = spool.file("public");
        let files = (archive.as_path(), list.as_path());
        let public = self.run_step(target, &owner, files, &contents.public, Tolerate::MissingPrivileges);
        target.finish(opened, public).await
    }

    /// Copies an archive to a file and checks its digest.
    async fn copy(&self, generation: &GenerationRef, file: &Path) -> Result<()> {
        let mut stream = self.archives.read(&generation.key).await?;
        let mut file = fs::File::create(file).await?;
        let (mut digester, mut size) = (Digester::default(), 0);
        while let Some(chunk) = stream.try_next().await? {
            size += chunk.len() as u64;
            if size > generation.size_bytes {
                break;
            }
            digester.update(&chunk);
            file.write_all(&chunk).await?;
        }
        file.flush().await?;
        if (size, digester.finish().hex()) == (generation.size_bytes, generation.sha256.clone()) {
            Ok(())
        } else {
            Err(BackupError::Corrupt(generation.key.clone()))
        }
    }

    /// Returns the table of contents of an archive.
    async fn list(&self, archive: &Path) -> Result<String> {
        let mut pg_restore = command(&self.programs, &self.programs.pg_restore);
        pg_restore.arg("--list").arg(archive).stdout(Stdio::piped());
        let mut program = Program::spawn(pg_restore)?;
        let mut list = Vec::new();
        if let Some(stdout) = program.child.stdout.take() {
            stdout.take(MAX_CONTENTS).read_to_end(&mut list).await?;
        }
        let finished = program.finish_soon().await?;
        match String::from_utf8(list) {
            Ok(list) if finished.status.success() => Ok(list),
            _ if finished.is_out_of_memory() => Err(out_of_memory("pg_restore", self.programs.limits.memory_bytes)),
            _ => {
                tracing::error!(messages = finished.excerpt(), "pg_restore cannot read an archive");
                Err(BackupError::Rejected("it has no table of contents".to_owned()))
            }
        }
    }

    /// Restores some entries. `role` is the role that the session acts as.
    async fn run_step(
        &self,
        target: &LoadTarget,
        role: &str,
        (archive, list): (&Path, &Path),
        entries: &str,
        tolerate: Tolerate,
    ) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        fs::write(list, entries).await?;
        let credentials = target.open().await.map_err(BackupError::Connect)?;
        let mut pg_restore = command(&self.programs, &self.programs.pg_restore);
        pg_restore.args(["--no-password", "--no-owner", "--no-tablespaces"]);
        if tolerate == Tolerate::Nothing {
            pg_restore.arg("--exit-on-error");
        }
        pg_restore.arg("--dbname").arg(&credentials.database).arg("--use-list").arg(list).arg(archive);
        set_login(&mut pg_restore, &credentials, role);
        let finish = Program::spawn(pg_restore)?.finish();
        tokio::pin!(finish);
        let finished = tokio::select! {
            finished = &mut finish => finished?,
            closed = target.close_when_connected() => {
                closed.map_err(BackupError::Connect)?;
                finish.await?
            }
        };
        target.close().await.map_err(BackupError::Connect)?;
        if finished.status.success() || tolerates(tolerate, &finished) {
            if !finished.status.success() {
                tracing::warn!(
                    database = credentials.database,
                    messages = finished.excerpt(),
                    "restored a database without some of its grants or materialized views"
                );
            }
            return Ok(());
        }
        tracing::error!(
            database = credentials.database,
            status = %finished.status,
            messages = finished.excerpt(),
            "pg_restore failed"
        );
        if finished.is_out_of_memory() {
            return Err(out_of_memory("pg_restore", self.programs.limits.memory_bytes));
        }
        Err(classify(&finished))
    }
}

fn tolerates(tolerate: Tolerate, finished: &Finished) -> bool {
    finished.has_only_ignored_errors()
        && finished.errors().all(|error| {
            let Some((_, error)) = error.split_once("could not execute query: ERROR:  ") else { return false };
            match tolerate {
                Tolerate::Nothing => false,
                Tolerate::MissingPrivileges => {
                    let names = ["role \"", "policy \""].iter().any(|kind| error.starts_with(kind));
                    names && error.ends_with("\" does not exist")
                        || ["permission denied ", "must be member of role \"", "must be able to SET ROLE \""]
                            .iter()
                            .any(|refusal| error.starts_with(refusal))
                }
                Tolerate::FailedQueries => true,
            }
        })
}

/// Classifies the failure of `pg_restore`. An error of a statement is permanent, unless the disk is full. Any other
/// failure is a lost connection or a signal.
fn classify(finished: &Finished) -> BackupError {
    let is_full = finished.messages.contains("No space left on device");
    match finished.server_error() {
        Some(error) if !is_full => BackupError::Rejected(error),
        Some(error) => BackupError::Interrupted(error),
        None => BackupError::Interrupted("the connection failed or ended".to_owned()),
    }
}

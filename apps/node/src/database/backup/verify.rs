//! Verification of an archive.

use std::process::Stdio;

use futures_util::TryStreamExt as _;
use protocol::GenerationRef;
use sha256::Digester;
use tokio::io::AsyncWriteExt as _;

use super::Service;
use super::error::{BackupError, Result, out_of_memory};
use super::program::{Program, command};

impl Service {
    /// Reads an archive back: compares size and digest, and lets `pg_restore` read and decompress all of it.
    pub(super) async fn verify(&self, archive: &GenerationRef) -> Result<()> {
        let mut pg_restore = command(&self.programs, &self.programs.pg_restore);
        pg_restore.args(["--format=custom", "--file=/dev/null"]).stdin(Stdio::piped());
        let mut stream = self.archives.read(&archive.key).await?;
        let mut program = Program::spawn(pg_restore)?;
        let mut stdin = program.child.stdin.take();
        let (mut digester, mut size) = (Digester::default(), 0);
        while let Some(chunk) = stream.try_next().await? {
            digester.update(&chunk);
            size += chunk.len() as u64;
            // After an error, `pg_restore` stops reading its input. So a failed write is not an error here: the exit
            // status of `pg_restore` decides.
            if let Some(input) = &mut stdin
                && input.write_all(&chunk).await.is_err()
            {
                stdin = None;
            }
        }
        drop(stdin);
        let finished = program.finish_soon().await?;
        if (size, digester.finish().hex()) != (archive.size_bytes, archive.sha256.clone()) {
            return Err(BackupError::Corrupt(archive.key.clone()));
        }
        if !finished.status.success() {
            tracing::error!(key = archive.key, messages = finished.excerpt(), "pg_restore cannot read an archive");
            if finished.is_out_of_memory() {
                return Err(out_of_memory("pg_restore", self.programs.limits.memory_bytes));
            }
            return Err(BackupError::Corrupt(archive.key.clone()));
        }
        Ok(())
    }
}

//! The journal: a file for each call that the control plane may have admitted and whose settlement it has not accepted.
//!
//! Each write replaces the file of a call in one step, so the file is complete even if the process dies. Files are not
//! synced: if the file of a call is missing after a power failure, the control plane ends the call with its own
//! estimate.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use protocol::AiUsage;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use uuid::Uuid;

/// The state of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum CallState {
    /// The node has asked the control plane to admit the call. If the process dies in this state, the call was not sent
    /// and is free.
    Asked,
    /// The call is sent. These are the estimates so far.
    Sent { input_tokens: u32, output_tokens: u32 },
    /// The call ended. `usage` is `None` if it is free.
    Ended { usage: Option<AiUsage> },
}

impl CallState {
    /// Returns the usage to settle if the process died in this state; `None` if the call is free.
    pub const fn usage(self) -> Option<AiUsage> {
        match self {
            Self::Asked => None,
            Self::Sent { input_tokens, output_tokens } => {
                Some(AiUsage { input_tokens, output_tokens, estimated: true })
            }
            Self::Ended { usage } => usage,
        }
    }
}

/// The journal of a node.
#[derive(Debug, Clone)]
pub struct Journal {
    dir: PathBuf,
}

impl Journal {
    /// Opens the journal in this folder, which it creates.
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Returns the calls of the previous process, and removes its unfinished writes. A malformed file is skipped, and
    /// renamed for the operator.
    pub fn read(&self) -> anyhow::Result<Vec<(Uuid, CallState)>> {
        let mut calls = Vec::new();
        for entry in std::fs::read_dir(&self.dir).context("cannot list the journal of AI calls")? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "tmp") {
                std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
                continue;
            }
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(id) = name.strip_suffix(".json").and_then(|id| id.parse().ok()) else { continue };
            let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            match serde_json::from_slice(&text) {
                Ok(state) => calls.push((id, state)),
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "the file of an AI call is malformed");
                    std::fs::rename(&path, path.with_extension("malformed"))?;
                }
            }
        }
        Ok(calls)
    }

    /// Writes the state of a call.
    pub async fn write(&self, id: Uuid, state: CallState) -> io::Result<()> {
        let (path, temporary) = (self.path(id, "json"), self.path(id, "tmp"));
        blocking(move || {
            let text = serde_json::to_vec(&state)?;
            let written = std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, path));
            if written.is_err() {
                // If the file stays, the next process removes it.
                let _ = std::fs::remove_file(temporary);
            }
            written
        })
        .await
    }

    /// Removes a call.
    pub async fn remove(&self, id: Uuid) -> io::Result<()> {
        let path = self.path(id, "json");
        blocking(move || std::fs::remove_file(path)).await
    }

    /// Renames the file of a call whose settlement the control plane rejected, so that an operator can inspect it.
    pub async fn set_aside(&self, id: Uuid) -> io::Result<()> {
        let (path, rejected) = (self.path(id, "json"), self.path(id, "rejected"));
        blocking(move || std::fs::rename(path, rejected)).await
    }

    fn path(&self, id: Uuid, extension: &str) -> PathBuf {
        self.dir.join(format!("{id}.{extension}"))
    }
}

async fn blocking(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn failed_write_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, id) = (Journal::open(dir.path()).unwrap(), Uuid::from_u128(1));
        // A folder with the name of the file prevents the rename.
        let folder = journal.path(id, "json");
        std::fs::create_dir(&folder).unwrap();
        journal.write(id, CallState::Asked).await.unwrap_err();
        let entries: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(entries, [folder]);
    }
}

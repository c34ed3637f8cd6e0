//! Errors of backups.

use std::io;

/// Why a backup, a check or a restore failed. `Display` is a clause for the project's members, without the addresses of
/// servers. The source is for the log.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("this node stores no backups")]
    NotConfigured,
    /// The object does not exist.
    #[error("the object {0} is missing in the backup store")]
    Missing(String),
    /// The object has another digest or size than recorded, or is not an archive.
    #[error("the object {0} is corrupt")]
    Corrupt(String),
    /// The archive cannot be restored.
    #[error("the archive cannot be restored: {0}")]
    Rejected(String),
    /// `pg_dump` failed.
    #[error("pg_dump failed: {0}")]
    Dump(String),
    /// `pg_dump` failed with an error of Postgres.
    #[error("pg_dump failed: {0}")]
    Server(String),
    /// `pg_dump` failed with the same error of Postgres again and again.
    #[error("pg_dump cannot read the database: {0}")]
    Unreadable(String),
    /// A dump or a restore reached a limit of the node.
    #[error("{0}")]
    Limit(String),
    /// `pg_restore` failed for a reason outside the archive.
    #[error("pg_restore was interrupted: {0}")]
    Interrupted(String),
    #[error("the backup store failed")]
    Store(#[from] object_store::Error),
    #[error("a file or a program of the node failed")]
    Io(#[from] io::Error),
    #[error("the node's Postgres failed")]
    Postgres(#[from] tokio_postgres::Error),
    #[error("the node's Postgres failed")]
    Connect(#[from] anyhow::Error),
}

/// Returns the error of a client program that needs more memory than it may use.
pub fn out_of_memory(program: &str, limit: u64) -> BackupError {
    let limit = limit >> 20;
    BackupError::Limit(format!(
        "{program} needs more than {limit} MiB of memory: the database has too many objects or too large rows"
    ))
}

/// The limit of the text of an error in a report to the control plane.
const MAX_REPORT_CHARS: usize = 1000;

/// Returns the text of an error for a report. The Postgres of the control plane does not store NUL.
pub fn report_text(text: &str) -> String {
    text.replace('\0', "").chars().take(MAX_REPORT_CHARS).collect()
}

/// Returns the text of a failure of backups for a report: the error and its consequence, without the last full stop.
pub fn failure_text(error: &str, consequence: &str) -> String {
    let error = report_text(error);
    let max = MAX_REPORT_CHARS.saturating_sub(consequence.len() + 2);
    format!("{}. {consequence}", error.chars().take(max).collect::<String>())
}

pub type Result<T> = std::result::Result<T, BackupError>;

impl BackupError {
    /// Returns the permanent error that caused `error`, if there is one.
    pub fn permanent(error: &anyhow::Error) -> Option<&Self> {
        error.downcast_ref::<Self>().filter(|error| error.is_permanent())
    }

    /// Returns whether repeating cannot help: the object is missing or corrupt, the archive cannot be restored, the
    /// database cannot be read, or a limit was reached.
    #[must_use]
    pub const fn is_permanent(&self) -> bool {
        matches!(
            self,
            Self::NotConfigured
                | Self::Missing(_)
                | Self::Corrupt(_)
                | Self::Rejected(_)
                | Self::Unreadable(_)
                | Self::Limit(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_long_error_contains_the_consequence() {
        let text = failure_text(&"\u{e9}".repeat(2000), "This backup is lost");
        assert!(text.ends_with("\u{e9}. This backup is lost"), "{text}");
        assert_eq!(text.chars().count(), MAX_REPORT_CHARS);
    }
}

//! The size of a database while an archive is loaded into it. A small archive can become large: text is compressed, and
//! functions of the tenant can insert rows.

use std::time::Duration;

use tokio::time::sleep;

use super::error::{BackupError, Result};
use crate::database::load::LoadTarget;

const INTERVAL: Duration = Duration::from_millis(500);

/// Fails as soon as the database exceeds its limit; otherwise, it never returns.
pub async fn watch(target: &LoadTarget, max_bytes: Option<u64>) -> Result<()> {
    loop {
        check(target, max_bytes).await?;
        sleep(INTERVAL).await;
    }
}

/// Fails if the database exceeds its limit.
pub async fn check(target: &LoadTarget, max_bytes: Option<u64>) -> Result<()> {
    let Some(max) = max_bytes else { return Ok(()) };
    let size = target.size().await.map_err(BackupError::Connect)?;
    if size > max {
        let message = format!("the restored database is larger than {} MiB, which the plan does not permit", max >> 20);
        return Err(BackupError::Limit(message));
    }
    Ok(())
}

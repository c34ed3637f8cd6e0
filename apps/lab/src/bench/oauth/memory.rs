//! The memory of the server for grants in use.

use anyhow::{Result, ensure};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use super::Rig;
use crate::bench::report::Report;
use crate::connected_app::{Tokens, start_session};
use crate::usage;

/// The number of grants of each user, which is below the limit.
const GRANTS_PER_USER: usize = 50;
/// Concurrent requests.
const CONCURRENCY: usize = 8;

/// Adds the resident memory before and after the grants were created and used.
pub async fn measure(report: &mut Report, rig: &Rig, grants: usize) -> Result<()> {
    // The first figure is measured after the pools and caches of the server are full.
    use_grants(rig, "warm", GRANTS_PER_USER).await?;
    let (before, _) = usage::memory(rig.server.program.pid())?;
    use_grants(rig, "user", grants).await?;
    let (after, _) = usage::memory(rig.server.program.pid())?;
    report.paragraph("**Memory.** Resident memory of the server.")?;
    report.columns(&["measurement", "MB"])?;
    report.row(&["before", &format!("{before:.1}")])?;
    let with = format!("{grants} live grants, the access token of each used once");
    report.row(&[&with, &format!("{after:.1}")])
}

/// Creates grants of several users, and uses the access token of each.
async fn use_grants(rig: &Rig, prefix: &str, count: usize) -> Result<()> {
    for first in (0..count).step_by(GRANTS_PER_USER) {
        let session = start_session(&rig.client, &rig.base, &format!("{prefix}{first}")).await?;
        let here = GRANTS_PER_USER.min(count - first);
        let created = stream::iter(0..here).map(|_| rig.app.sign_in(&session)).buffer_unordered(CONCURRENCY);
        let tokens: Vec<Tokens> = created.try_collect().await?;
        for Tokens { access, .. } in &tokens {
            ensure!(rig.app.use_token(access).await? == 200, "the API rejects an access token");
        }
    }
    Ok(())
}

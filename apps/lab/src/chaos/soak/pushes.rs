//! A client that pushes commits, and keeps a journal.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::time::sleep;

use super::pause::pause;
use super::rig::{Nodes, Rig};
use crate::chaos::Outcome;
use crate::chaos::git::{Pushers, Update, check, violations};
use crate::git_host::{GitClient, create_repository, repository_directory};

const REPO: &str = "soak";
/// The pause after each push.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest time until the last update is listed.
const MAX_DELIVERY: Duration = Duration::from_secs(60);

/// The number of pushes after which the listed updates are read. The server keeps only the newest ones.
const READ_EVERY: usize = 20;

/// Selects the updates of the branch in their order.
const UPDATES: &str = "\
    SELECT u.number, u.old_oid, u.new_oid FROM git.ref_updates u JOIN git.repositories r ON r.id = u.repository_id \
    WHERE r.name = 'soak' ORDER BY u.number";

/// A client with the commits of its acknowledged pushes.
pub struct Pusher {
    client: GitClient,
    pushers: Pushers,
    pub acknowledged: Vec<String>,
    /// The updates that were listed so far. The first one has the number 1.
    listed: Vec<Update>,
}

impl Pusher {
    pub async fn prepare(rig: &Rig, nodes: &Nodes, folder: &Path) -> Result<Self> {
        let client = GitClient::register(&rig.platform.server, &nodes.git).await?;
        create_repository(&rig.platform.server, REPO).await?;
        let pushers = Pushers::start(client.clone(), folder, REPO).await?;
        let acknowledged = vec![pushers.head.clone()];
        Ok(Self { client, pushers, acknowledged, listed: Vec::new() })
    }

    /// Pushes a commit at a time until stopped, alternately over HTTP and SSH.
    pub async fn run(mut self, rig: &Rig, stopped: &AtomicBool) -> Result<Self> {
        let mut pushes = 0_usize;
        while pause(PAUSE, stopped).await {
            pushes += 1;
            let commit = self.pushers.commit().await?;
            if self.pushers.push_of(&commit, pushes.is_multiple_of(2)).status().await?.success() {
                self.acknowledged.push(commit.clone());
                self.pushers.head = commit;
            } else if let Ok(head) = self.pushers.remote_head().await {
                // The push may have been executed. While the node is down, the next push has the same parent.
                self.pushers.head = head;
            }
            if pushes.is_multiple_of(READ_EVERY)
                && let Ok(rows) = chaos::rows(&rig.database, UPDATES).await
            {
                // Otherwise, Postgres is down, and the next time reads these updates too.
                self.extend(&rows)?;
            }
        }
        Ok(self)
    }

    /// Adds the updates after the last known one.
    fn extend(&mut self, rows: &[Value]) -> Result<()> {
        for row in rows {
            let number = row.get("number").and_then(Value::as_u64).context("no number")?;
            let next = u64::try_from(self.listed.len())? + 1;
            ensure!(number <= next, "the update {next} is not listed before {number}");
            if number == next {
                self.listed.push(update(row));
            }
        }
        Ok(())
    }

    /// Waits until the last update is listed, and compares the list with the journal.
    pub async fn verify(&mut self, rig: &Rig, outcome: &mut Outcome) -> Result<()> {
        let (start, head) = (Instant::now(), self.pushers.remote_head().await?);
        loop {
            self.extend(&chaos::rows(&rig.database, UPDATES).await?)?;
            if self.listed.last().is_some_and(|(_, new)| new.as_ref() == Some(&head)) {
                break;
            }
            ensure!(start.elapsed() < MAX_DELIVERY, "the update to {head} is not listed");
            sleep(Duration::from_millis(100)).await;
        }
        outcome.violations.extend(violations(&self.listed, &self.acknowledged));
        let directory = repository_directory(&rig.platform.server, &rig.folder, REPO).await?;
        check(&self.client, &directory, outcome).await
    }
}

fn update(row: &Value) -> Update {
    let commit = |column: &str| row.get(column).and_then(Value::as_str).map(str::to_owned);
    (commit("old_oid"), commit("new_oid"))
}

//! The results that the clients received, and their comparison with the stored results.

use anyhow::Result;
use chaos::Writers;
use sandbox::ReceivedMail;

use super::deploys::{self, Changes};
use super::pushes::Pusher;
use super::rig::{Nodes, Program, Rig};
use super::workload::VISITORS;
use crate::bench::databases::Database;
use crate::bench::server::SEALING_KEY;
use crate::chaos::billing::{self, Tokens};
use crate::chaos::databases;
use crate::chaos::databases::journal::Write;
use crate::chaos::databases::restore::Restore;
use crate::chaos::domains::{self, Buyer};
use crate::chaos::mail::client::Sent;
use crate::chaos::oauth::crashes;
use crate::chaos::{Outcome, mail};
use crate::connected_app::ConnectedApp;

/// The journals of all clients.
pub struct Journals {
    pub writers: Writers,
    pub mails: Vec<Sent>,
    /// The complete responses of AI models.
    pub answered: Vec<Tokens>,
    pub changes: Changes,
    /// The hostname of the site of `changes`.
    pub hostname: String,
    pub pusher: Result<Pusher>,
    pub restores: Result<Vec<Restore>>,
    /// The rows of the project's database.
    pub rows: Vec<Write>,
    pub database: Database,
    pub grants: crashes::Journal,
    pub app: ConnectedApp,
    pub buyers: Vec<Buyer>,
}

impl Journals {
    /// Waits until everything in progress has ended, and records all differences in `outcome`.
    pub async fn settle_and_verify(
        &mut self,
        rig: &Rig,
        nodes: &mut Nodes,
        faults: usize,
        mail_repetitions: usize,
        outcome: &mut Outcome,
    ) -> Result<()> {
        record(self.writers.retry_unacknowledged().await, outcome);
        record(domains::wait_until_complete(&rig.database).await, outcome);
        record(mail::wait_until_complete(&nodes.mail, &rig.database).await, outcome);
        record(deploys::verify(&rig.platform, &self.hostname, &self.changes).await, outcome);
        billing::check(&rig.database, &self.answered, &rig.models, faults * VISITORS, outcome).await?;
        crashes::check(&self.app, &self.grants, outcome).await?;
        let purchases = domains::violations(&self.buyers, &rig.database, &rig.registrar, &rig.payments).await?;
        outcome.violations.extend(purchases);
        let report = mail::check::compare(&rig.database, &self.mails, &replies(rig), faults, mail_repetitions).await?;
        outcome.violations.extend(report.violations);
        match &mut self.pusher {
            Ok(pusher) => record(pusher.verify(rig, outcome).await, outcome),
            Err(error) => outcome.violations.push(format!("the pushes ended: {error:#}")),
        }
        match &self.restores {
            Ok(restores) => {
                let (platform, cluster) = (&rig.platform, &rig.databases);
                let verified =
                    databases::verify(platform, cluster, &self.database, &self.rows, restores, outcome).await;
                record(verified, outcome);
            }
            Err(error) => outcome.violations.push(format!("the restores ended: {error:#}")),
        }
        outcome.violations.extend(self.writers.violations(&rig.database, &[SEALING_KEY]).await?);
        for program in Program::ALL {
            nodes.keep_log_errors(program)?;
        }
        outcome.violations.append(&mut nodes.log_errors);
        Ok(())
    }

    /// Returns the numbers of acknowledged results.
    pub fn summary(&self) -> String {
        let domains: usize = self.buyers.iter().map(|buyer| buyer.bought.len() + buyer.refused.len()).sum();
        format!(
            "acknowledged: {} writes of the API, {} deployments of a worker, {} changes of its secret, {} mails, {} AI \
             calls, {} pushes, {} rows, {} restores, {domains} purchases, {} requests for grants",
            self.writers.stats().acknowledged,
            self.changes.versions.changes,
            self.changes.secrets.changes,
            self.mails.iter().filter(|mail| mail.acknowledged).count(),
            self.answered.len(),
            self.pusher.as_ref().map_or(0, |pusher| pusher.acknowledged.len()),
            self.rows.iter().filter(|row| row.acknowledged.is_some()).count(),
            self.restores.as_ref().map_or(0, Vec::len),
            self.grants.acknowledged,
        )
    }
}

/// Returns the replies of workers at the relay. It also receives invitations.
fn replies(rig: &Rig) -> Vec<ReceivedMail> {
    let is_reply = |mail: &ReceivedMail| mail.to.iter().any(|to| to.starts_with("client-"));
    rig.relay.received().into_iter().filter(is_reply).collect()
}

/// Records an error as a violation.
fn record<T>(result: Result<T>, outcome: &mut Outcome) {
    if let Err(error) = result {
        outcome.violations.push(format!("{error:#}"));
    }
}

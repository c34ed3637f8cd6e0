//! `kill -9` of the mail node, of the server and of the node while clients send mail, and workers reply to it.
//!
//! Each client keeps a journal of its mails. Every acknowledged mail must be in the log of both recipients once, each
//! mail of the log must reach `email()`, and each reply must reach the relay. A kill may repeat an operation in
//! progress, with the same id.

pub mod check;
pub mod client;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sandbox::{Encryption, SmtpServer};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use xtask::services::Services;
use xtask::workerd;

use super::Outcome;
use super::report::Finding;
use crate::bench::machine::with_services;
use crate::mail_host::{MailHost, MailNode, create_with_worker};
use crate::random;
use client::Client;

const CLIENTS: usize = 4;
/// The pause of a client between two mails.
const PAUSE: Duration = Duration::from_millis(100);
/// The kills of a run with the default number of repetitions.
const KILLS: usize = 90;
/// The longest time after the last kill until every mail was handled and every reply was sent. A claim of the outbox
/// ends after a minute, and a failed delivery is repeated after up to five minutes.
const MAX_COMPLETION: Duration = Duration::from_secs(600);

/// A worker that replies to each mail. The subject of the reply names the mail.
pub const WORKER: &[u8] = b"
export default {
  async fetch() {
    return new Response('ok');
  },
  async email(message, env) {
    const subject = `${message.id} ${message.headers.get('subject')}`;
    await env.email.send({ to: message.from, subject, text: 'received' });
  },
};
";

/// The ids of the operations in progress.
const PENDING: &str =
    "SELECT mail_id FROM mail.deliveries UNION ALL SELECT id FROM store.outbox WHERE topic = 'mail.relay'";

pub async fn run(rounds: usize) -> Result<Outcome> {
    let Some(workerd) = workerd::find() else {
        return Ok(Outcome { skipped: vec!["mail of workers (no workerd)".to_owned()], ..Outcome::default() });
    };
    let node = vec![("SVC_NODE_WORKERD", workerd.display().to_string())];
    with_services(async |services, folder| measure(services, folder, node, (KILLS * rounds).div_ceil(3)).await).await
}

async fn measure(
    services: &mut Services,
    folder: &Path,
    node: Vec<(&'static str, String)>,
    kills: usize,
) -> Result<Outcome> {
    let relay = SmtpServer::start(Encryption::None).await;
    let host = MailHost::start(services, folder, &relay.url(), node).await?;
    let recipients = [
        create_with_worker(&host.platform, "one", WORKER).await?,
        create_with_worker(&host.platform, "two", WORKER).await?,
    ];
    let (acknowledged, stopped) = (watch::Sender::new(0), watch::Sender::new(false));
    let clients = (0..CLIENTS).map(|number| Client::new(host.node.smtp, number, recipients.clone(), PAUSE));
    let mut clients: JoinSet<_> = clients.map(|client| client.run(acknowledged.clone(), stopped.subscribe())).collect();
    for number in 0..kills {
        if number % 2 == 0 {
            sleep(random::millis(0..1500)).await;
        } else {
            // The process is killed immediately after an acknowledgement.
            let (mut count, before) = (acknowledged.subscribe(), *acknowledged.borrow());
            timeout(Duration::from_secs(30), count.wait_for(|count| *count > before)).await??;
        }
        match number % 3 {
            0 => host.node.program.kill_and_restart(services).await?,
            1 => host.platform.server.program.kill_and_restart(services).await?,
            _ => host.platform.node.kill_and_restart(services).await?,
        }
    }
    stopped.send_replace(true);
    let mut journal = Vec::new();
    while let Some(mails) = clients.join_next().await {
        journal.extend(mails?);
    }
    let completed_in = wait_until_complete(&host.node, &host.database).await?;
    let mut outcome = Outcome::default();
    // Every third kill is of the mail node. It only receives mail, so this kill repeats no call and no reply.
    let max_repetitions = (kills - kills.div_ceil(3)) * check::MAX_IN_PROGRESS;
    let report = check::compare(&host.database, &journal, &relay.received(), kills, max_repetitions).await?;
    outcome.violations.extend(report.violations);
    outcome.violations.extend(chaos::violations(&host.database, &[crate::bench::server::SEALING_KEY]).await?);
    ensure!(report.acknowledged > kills, "only {} mails were acknowledged", report.acknowledged);
    outcome.findings.push(Finding::new(
        "kill -9 of mail node, server and node while clients send mail and workers reply",
        "no acknowledged mail lost; each mail handled and each reply relayed, repeated at most once for each kill and \
         with the same id; in total at most ten mails and ten replies repeated for each kill of server or node",
        outcome.violations.is_empty(),
        format!(
            "{kills} kills: {} mails acknowledged for two projects each, {} without a reply to DATA; {} copies stored, {} \
             handled again, {} replies, {} relayed again; {} violations; all complete {:.1} s after the last kill",
            report.acknowledged,
            report.unknown,
            report.stored,
            report.handled_again,
            report.replies,
            report.relayed_again,
            outcome.violations.len(),
            completed_in.as_secs_f64(),
        ),
    ));
    Ok(outcome)
}

/// Waits until the queue of the mail node is empty, no mail waits for a worker, and no reply waits for the relay.
pub async fn wait_until_complete(node: &MailNode, database: &str) -> Result<Duration> {
    let start = Instant::now();
    loop {
        let (queued, pending) = (node.queued()?, chaos::rows(database, PENDING).await?.len());
        if queued == 0 && pending == 0 {
            return Ok(start.elapsed());
        }
        ensure!(start.elapsed() < MAX_COMPLETION, "{queued} mails are in the queue, and {pending} are not complete");
        sleep(Duration::from_millis(100)).await;
    }
}

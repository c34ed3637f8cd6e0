//! The clients of the platform.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result};
use chaos::{Writers, run_clients};
use futures_util::future::join_all;
use kernel::Secret;
use reqwest::Client;
use store::migrations;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::journals::Journals;
use super::pushes::Pusher;
use super::rig::{Nodes, Rig};
use super::{deploys, queries, restores};
use crate::bench::billing::Site;
use crate::bench::databases::Database;
use crate::bench::platform::Project;
use crate::chaos::billing::visit;
use crate::chaos::databases::journal::{self, Journal};
use crate::chaos::domains::Buyer;
use crate::chaos::mail;
use crate::chaos::mail::client::Client as MailClient;
use crate::chaos::oauth::Setup;
use crate::chaos::oauth::crashes::use_grants;
use crate::mail_host::create_with_worker;

/// The clients that write projects, deployments, tokens, invitations and zones, and their pause after each write.
const WRITERS: usize = 2;
const WRITE_PAUSE: Duration = Duration::from_millis(300);
const MAIL_CLIENTS: usize = 2;
const MAIL_PAUSE: Duration = Duration::from_millis(700);
/// The visitors that call AI models.
pub const VISITORS: usize = 2;
const CALL_PAUSE: Duration = Duration::from_millis(300);
const ROW_PAUSE: Duration = Duration::from_millis(50);
/// The pause of the connected app after each refresh.
const GRANT_PAUSE: Duration = Duration::from_millis(300);
const PURCHASE_PAUSE: Duration = Duration::from_secs(3);

/// The clients, and the projects that they use.
pub struct Workload<'a> {
    writers: Writers,
    mail_node: SocketAddr,
    mail_domains: [String; 2],
    models: Site,
    deploys: Project<'a>,
    queries: Project<'a>,
    database: Database,
    pusher: Pusher,
    oauth: Setup,
    buyer: Buyer,
    client: Client,
}

impl<'a> Workload<'a> {
    pub async fn prepare(rig: &'a Rig, nodes: &Nodes) -> Result<Self> {
        let (platform, base, client) = (&rig.platform, rig.platform.public_url(), chaos::client()?);
        let mail_domains = [
            create_with_worker(platform, "one", mail::WORKER).await?,
            create_with_worker(platform, "two", mail::WORKER).await?,
        ];
        let mut database = migrations::connect(Secret::new(rig.database.clone())).await?;
        let models = Site::deploy(platform, &mut database).await?;
        let (queries, database) = queries::prepare(platform).await?;
        Ok(Self {
            writers: Writers::start(&base, WRITERS).await?.with_pause(WRITE_PAUSE),
            mail_node: nodes.mail.smtp,
            mail_domains,
            models,
            deploys: deploys::prepare(platform).await?,
            queries,
            database,
            pusher: Pusher::prepare(rig, nodes, &rig.folder).await?,
            oauth: Setup::new(&rig.key, &rig.database, base.clone()).await?,
            buyer: Buyer::start(&client, &base, &rig.payments, 0).await?,
            client,
        })
    }

    /// Runs all clients until `faults` has ended. Returns their journals, and the result of `faults`.
    pub async fn run<T>(self, rig: &Rig, faults: impl Future<Output = Result<T>>) -> Result<(Journals, T)> {
        let Self { mut writers, models, deploys, queries, database, pusher, oauth, buyer, client, .. } = self;
        let (acknowledged, mail_stopped) = (watch::Sender::new(0), watch::Sender::new(false));
        let mail_clients = (0..MAIL_CLIENTS).map(|number| {
            let client = MailClient::new(self.mail_node, number, self.mail_domains.clone(), MAIL_PAUSE);
            client.run(acknowledged.clone(), mail_stopped.subscribe())
        });
        let (mut mail_clients, rows): (JoinSet<_>, _) = (mail_clients.collect(), Journal::default());
        let (platform, base, stopped) = (&rig.platform, rig.platform.public_url(), &AtomicBool::new(false));
        let others = async {
            let visitors = (0..VISITORS).map(|number| visit(&models, number, CALL_PAUSE, stopped));
            tokio::join!(
                join_all(visitors),
                deploys::run(platform, &deploys, stopped),
                pusher.run(rig, stopped),
                restores::run(rig, &rows, stopped),
                journal::write(&database, 0, ROW_PAUSE, &rows, stopped),
                queries::run(platform, &queries.hostname, 1, &rows, stopped),
                use_grants(&oauth, GRANT_PAUSE, stopped),
                buyer.run(&client, &base, PURCHASE_PAUSE, stopped),
            )
        };
        let (others, faulted) = writers.write_during(run_clients(others, stopped, faults)).await?;
        let (answered, changes, pusher, restores, (), (), grants, buyer) = others;
        mail_stopped.send_replace(true);
        let mut mails = Vec::new();
        while let Some(sent) = mail_clients.join_next().await {
            mails.extend(sent.context("a mail client stopped")?);
        }
        let journals = Journals {
            writers,
            mails,
            answered: answered.concat(),
            changes,
            hostname: deploys.hostname,
            pusher,
            restores,
            rows: rows.into_writes(),
            database,
            grants,
            app: oauth.app,
            buyers: vec![buyer],
        };
        Ok((journals, faulted))
    }
}

//! The test fixture: the service on a separate database per test, a mail store in a folder, and a relay that records
//! messages.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kernel::audit::Actor;
use kernel::{Limits, MailId, NodeId, OrgId, Plan, ProjectId};
use mail::{
    Envelope, Mail, MailDirection, MailLogEntry, MailRelay, Nodes, Notice, Organizations, OutgoingMail, Ports,
    RawMails, Refusal, Relay, RelayError, Relayed, Submission, Target,
};
use objects::{Store, StoreConfig};
use store::Connection;
use tempfile::TempDir;
use testkit::{TestStore, session_actor};
use tokio::sync::broadcast;

pub const DOMAIN: &str = "mail.example";

pub struct Kit {
    pub mail: Mail,
    pub notices: Notices,
    pub relay: Arc<RecordingRelay>,
    pub actor: Actor,
    pub node: NodeId,
    pub folder: TempDir,
    /// Sends the ids of the nodes whose claims are woken.
    pub wake_ups: broadcast::Sender<NodeId>,
    /// The mails that the node has claimed so far.
    pub claimed: Mutex<Vec<MailId>>,
    org: OrgId,
    base: TestStore,
}

/// Records the raised notifications.
#[derive(Clone, Default)]
pub struct Notices(Arc<Mutex<Vec<(OrgId, Notice)>>>);

#[async_trait]
impl Organizations for Notices {
    async fn raise(&self, _: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()> {
        self.0.lock().unwrap().push((org, notice));
        Ok(())
    }
}

impl Notices {
    pub fn take(&self) -> Vec<(OrgId, Notice)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Wakes the claims of this process. The wake-up is sent before the commit, so a claim may need a second read to see
/// the mail.
struct LocalNodes(broadcast::Sender<NodeId>);

#[async_trait]
impl Nodes for LocalNodes {
    async fn wake(&self, _: &mut Connection, node: NodeId) -> store::Result<()> {
        let _ = self.0.send(node);
        Ok(())
    }

    fn next_wake_up(&self, node: NodeId) -> BoxFuture<'static, ()> {
        let mut wake_ups = self.0.subscribe();
        async move { while wake_ups.recv().await.is_ok_and(|it| it != node) {} }.boxed()
    }
}

/// A relay that records messages. It gives each message the id `relay-<number>`, unless a response is set.
#[derive(Default)]
pub struct RecordingRelay {
    sent: Mutex<Vec<(Envelope, Vec<u8>)>>,
    responses: Mutex<VecDeque<Result<Relayed, RelayError>>>,
}

impl RecordingRelay {
    pub fn sent(&self) -> Vec<(Envelope, Vec<u8>)> {
        self.sent.lock().unwrap().clone()
    }

    pub fn respond(&self, response: Result<Relayed, RelayError>) {
        self.responses.lock().unwrap().push_back(response);
    }
}

#[async_trait]
impl Relay for RecordingRelay {
    async fn send(&self, envelope: &Envelope, message: &[u8]) -> Result<Relayed, RelayError> {
        let mut sent = self.sent.lock().unwrap();
        sent.push((envelope.clone(), message.to_vec()));
        let default = Relayed { id: Some(format!("relay-{}", sent.len())), refused: Vec::new() };
        self.responses.lock().unwrap().pop_front().unwrap_or(Ok(default))
    }
}

impl Deref for Kit {
    type Target = TestStore;

    fn deref(&self) -> &TestStore {
        &self.base
    }
}

impl Kit {
    pub async fn start() -> Self {
        Self::with(Limits::default(), |mail| mail).await
    }

    pub async fn with(limits: Limits, change: impl FnOnce(Mail) -> Mail) -> Self {
        let folder = TempDir::new().unwrap();
        let store = StoreConfig::Folder(folder.path().to_owned());
        Self::on(folder, &store, limits, change).await
    }

    /// Starts on this mail store. `folder` is deleted at the end.
    pub async fn on(folder: TempDir, store: &StoreConfig, limits: Limits, change: impl FnOnce(Mail) -> Mail) -> Self {
        Self::on_objects(folder, store.open().unwrap(), limits, change).await
    }

    /// Starts on this opened mail store. `folder` is deleted at the end.
    pub async fn on_objects(folder: TempDir, store: Store, limits: Limits, change: impl FnOnce(Mail) -> Mail) -> Self {
        let base = TestStore::start().await;
        let (org, node): (OrgId, NodeId) = (base.store.clock_rng().id(), base.store.clock_rng().id());
        base.db_execute(&format!(
            "INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at)
                 VALUES ('{}', 'acme', 'Acme', 'free', false, now());
             INSERT INTO convergence.nodes (id, name, token_hash, created_at) VALUES ('{}', 'edge', 'hash', now())",
            org.as_uuid(),
            node.as_uuid()
        ))
        .await;
        let raws = RawMails::new(store);
        let (notices, wake_ups) = (Notices::default(), broadcast::channel(16).0);
        let ports = Ports { organizations: Arc::new(notices.clone()), nodes: Arc::new(LocalNodes(wake_ups.clone())) };
        let mail = change(Mail::new(base.store.clone(), raws, limits, Some(DOMAIN.to_owned()), ports));
        let actor = session_actor(base.store.clock_rng().id());
        let (relay, claimed) = (Arc::default(), Mutex::default());
        Self { mail, notices, relay, actor, node, folder, wake_ups, claimed, org, base }
    }

    /// Returns the service of another server, whose clock is ahead of that of Postgres.
    pub fn server_ahead(&self, seconds: i64) -> Mail {
        let raws = RawMails::new(StoreConfig::Folder(self.folder.path().to_owned()).open().unwrap());
        let nodes = Arc::new(LocalNodes(self.wake_ups.clone()));
        let ports = Ports { organizations: Arc::new(self.notices.clone()), nodes };
        Mail::new(self.with_clock_ahead(seconds), raws, Limits::default(), Some(DOMAIN.to_owned()), ports)
    }

    /// Inserts a project that has a mail domain and this node as its home node.
    pub async fn project(&self, name: &str) -> Target {
        let target = self.ungranted(name).await;
        self.grant(target, name).await;
        target
    }

    /// Inserts a project without a mail domain.
    pub async fn ungranted(&self, name: &str) -> Target {
        let project: ProjectId = self.store.clock_rng().id();
        self.db_execute(&format!(
            "INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at)
                 VALUES ('{project}', '{}', '{name}', 'public', 0, now());
             INSERT INTO convergence.placements (project_id, node_id, state, epoch, created_at)
                 VALUES ('{project}', '{}', 'active', 1, now())",
            self.org.as_uuid(),
            self.node.as_uuid(),
            project = project.as_uuid(),
        ))
        .await;
        Target { org: self.org, plan: Plan::Free, project }
    }

    pub async fn grant(&self, target: Target, name: &str) {
        let domain = format!("{name}.acme.{DOMAIN}");
        let project = target.project.as_uuid();
        self.db_execute(&format!("INSERT INTO resources.email_domains VALUES ('{project}', '{domain}')")).await;
    }

    pub async fn revoke(&self, target: Target) {
        let project = target.project.as_uuid();
        self.db_execute(&format!("DELETE FROM resources.email_domains WHERE project_id = '{project}'")).await;
    }

    pub fn new_id(&self) -> MailId {
        self.store.clock_rng().id()
    }

    /// Submits a mail of the project from the node.
    pub async fn submit(&self, target: Target, mail: OutgoingMail) -> Result<MailId, Refusal> {
        let id = self.new_id();
        self.submit_as(id, target, mail).await.map(|()| id)
    }

    pub async fn submit_as(&self, id: MailId, target: Target, mail: OutgoingMail) -> Result<(), Refusal> {
        let submission = Submission { id, project: target.project, mail };
        self.mail.submit(self.node, submission).await.unwrap()
    }

    /// Attempts all due messages of the outbox.
    pub async fn relay(&self) {
        // When this count is zero, no message is due, and no first attempt is in progress. The stop of the worker waits
        // for other attempts.
        let due = format!(
            "SELECT count(*) FROM store.outbox WHERE dead_lettered_at IS NULL \
             AND (next_attempt_at <= '{}' OR last_error IS NULL AND attempts > 0)",
            self.now()
        );
        let worker = self.store.spawn_outbox_worker(Arc::new(MailRelay::new(self.mail.clone(), self.relay.clone())));
        let idle = async {
            while self.db_number(&due).await > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), idle).await.unwrap();
        worker.stop().await;
    }

    /// Submits a mail and relays it.
    pub async fn send(&self, target: Target, to: &[&str]) -> MailId {
        let id = self.submit(target, outgoing(to)).await.unwrap();
        self.relay().await;
        id
    }

    pub async fn entry(&self, target: Target, id: MailId) -> MailLogEntry {
        self.mail.entry(target.project, id).await.unwrap()
    }

    /// Returns the outcome and the detail of a mail.
    pub async fn outcome(&self, target: Target, id: MailId) -> (String, Option<String>) {
        let entry = self.entry(target, id).await;
        (entry.outcome.to_string(), entry.detail)
    }

    pub async fn count(&self, target: Target, direction: MailDirection) -> usize {
        let paging = kernel::Paging { limit: 200, after: None };
        self.mail.log(target.project, Some(direction), &paging).await.unwrap().items.len()
    }

    /// Returns the number of objects in the mail store.
    pub fn objects(&self) -> usize {
        let folders = std::fs::read_dir(self.folder.path()).unwrap().map(|folder| folder.unwrap().path());
        folders.map(|folder| std::fs::read_dir(folder).unwrap().count()).sum()
    }
}

/// Returns an outgoing mail to these recipients.
pub fn outgoing(to: &[&str]) -> OutgoingMail {
    OutgoingMail {
        to: to.iter().map(|to| (*to).to_owned()).collect(),
        subject: "Welcome".to_owned(),
        text: Some("Hello".to_owned()),
        ..OutgoingMail::default()
    }
}

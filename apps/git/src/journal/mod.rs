//! The journal of ref updates: a file per repository with updates that the control plane does not have yet.
//!
//! The hook of git appends the updates of a transaction while git holds the locks of its refs, and before it changes
//! them. So the order of the file is the order of the updates of each ref. When the transaction ends, the hook appends
//! its outcome, before git reports it to the client. After a crash, a transaction without an outcome is compared with
//! the refs. The updates that took effect are numbered in the order of the file, and delivered until the control plane
//! has them; it records each number once.

mod book;
mod delivery;
mod hooks;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use std::{fs, io};

use anyhow::Context as _;
use chrono::{DateTime, SecondsFormat, Utc};
use protocol::GitGrant;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;

use self::book::{Book, Transaction, read_ref};
use crate::hook::{Phase, Step};
use crate::leftovers;
use crate::limits::NodePermit;
use crate::random;
use crate::repository::Repositories;

/// The journal. Cheap to clone.
#[derive(Clone)]
pub struct Journal(Arc<Inner>);

struct Inner {
    repositories: Repositories,
    books: Mutex<HashMap<String, Arc<Mutex<Book>>>>,
    pushes: Mutex<HashMap<String, Push>>,
    /// The repositories with updates to deliver.
    changed: mpsc::UnboundedSender<String>,
}

/// A push in progress.
#[derive(Debug, Clone)]
struct Push {
    repository: String,
    path: PathBuf,
    pusher: Option<String>,
    credential: Option<String>,
    /// The updates that the control plane had when it authorized the push.
    last_update: i64,
    deploy: Option<Arc<DeployRef>>,
    /// The permit of the program, which a push that waits for its deploy does not need.
    permit: NodePermit,
}

/// The ref whose pushes are deployed.
#[derive(Debug)]
struct DeployRef {
    name: String,
    /// The number of the update of this ref by the push; `None` until the update is delivered.
    number: watch::Sender<Option<i64>>,
}

/// A registered push. Its transactions are resolved when it is finished.
pub struct PushGuard {
    journal: Journal,
    id: String,
    is_finished: bool,
}

/// A push that is refused, with the reason for the user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

impl Journal {
    /// Loads the journal, and decides about transactions without an outcome. No process of git may run.
    pub fn open(repositories: &Repositories) -> anyhow::Result<(Self, mpsc::UnboundedReceiver<String>)> {
        let dir = repositories.journal_dir();
        fs::create_dir_all(&dir)?;
        let (changed, receiver) = mpsc::unbounded_channel();
        let mut books = HashMap::new();
        for id in repositories.all() {
            leftovers::remove(&repositories.path(&id)?)?;
        }
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            let id = path.file_name().and_then(|name| name.to_str()).map(ToOwned::to_owned);
            let id = id.context("the journal contains a foreign file")?;
            let mut book = Book::load(&path).with_context(|| format!("the journal of {id} is damaged"))?;
            let repository = repositories.path(&id)?;
            book.resolve(repositories.git(), &repository, None)?;
            // This fails only if the receiver is closed.
            let _ = changed.send(id.clone());
            books.insert(id, Arc::new(Mutex::new(book)));
        }
        let repositories = repositories.clone();
        let inner = Inner { repositories, books: Mutex::new(books), pushes: Mutex::default(), changed };
        Ok((Self(Arc::new(inner)), receiver))
    }

    /// Registers a push to a repository.
    pub fn begin(&self, repository: &Path, grant: &GitGrant, permit: NodePermit) -> io::Result<PushGuard> {
        let id = random::token()?;
        let deploy = grant.deploy_branch.as_ref().map(|branch| {
            Arc::new(DeployRef { name: format!("refs/heads/{branch}"), number: watch::Sender::new(None) })
        });
        let push = Push {
            repository: grant.repository.clone(),
            path: repository.to_owned(),
            pusher: grant.user.clone(),
            credential: grant.credential.clone(),
            last_update: grant.last_update,
            deploy,
            permit,
        };
        self.pushes().insert(id.clone(), push);
        Ok(PushGuard { journal: self.clone(), id, is_finished: false })
    }

    fn pushes(&self) -> MutexGuard<'_, HashMap<String, Push>> {
        self.0.pushes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn book(&self, repository: &str) -> Arc<Mutex<Book>> {
        let mut books = self.0.books.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Mutex::new(Book::new(self.0.repositories.journal_dir().join(repository))));
        Arc::clone(books.entry(repository.to_owned()).or_insert_with(new))
    }

    /// Records a step of a transaction.
    fn record(&self, step: Step) -> anyhow::Result<()> {
        let Step { push: id, phase, mut updates } = step;
        let find = || self.pushes().get(&id).cloned().context("there is no such push");
        let repository = find()?.repository;
        updates.retain(|update| update.name.starts_with("refs/") && !update.name.starts_with("refs/svc/"));
        if updates.is_empty() {
            return Ok(());
        }
        let book = self.book(&repository);
        let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
        // Read the push again under the lock, because a push that has finished must not record anything.
        let push = find()?;
        match phase {
            Phase::Received => {
                // git deletes a ref without a check if it cannot read the old object, and reports no old object then.
                for update in updates.iter().filter(|update| update.new.is_none()) {
                    let current = read_ref(self.0.repositories.git(), &push.path, &update.name)?;
                    if update.old.is_none() || current != update.old {
                        return Err(Refused(format!("{} changed. Fetch, and delete it again.", update.name)).into());
                    }
                }
                Ok(())
            }
            Phase::Prepared => {
                // Resolve an earlier transaction of the push whose end was not reported.
                book.resolve(self.0.repositories.git(), &push.path, Some(&id))?;
                if book.transactions.is_empty() {
                    book.after = book.after.max(push.last_update);
                }
                let at: DateTime<Utc> = now().into();
                let at = at.to_rfc3339_opts(SecondsFormat::Millis, true);
                let Push { pusher, credential, .. } = push;
                book.append(Transaction { push: id, pusher, credential, at, updates, outcome: None })
            }
            Phase::Committed | Phase::Aborted => {
                book.end(&id, &updates, phase == Phase::Committed)?;
                self.notify(push.repository);
                Ok(())
            }
            Phase::Finished => Ok(()),
        }
    }

    /// After the processes of a push have ended, decides about its transactions.
    fn finish(&self, id: &str) -> anyhow::Result<()> {
        let Some(push) = self.pushes().get(id).cloned() else { return Ok(()) };
        let book = self.book(&push.repository);
        let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
        let resolved = book.resolve(self.0.repositories.git(), &push.path, Some(id));
        self.pushes().remove(id);
        resolved?;
        self.notify(push.repository);
        Ok(())
    }

    /// Lets the updates of a repository be delivered.
    fn notify(&self, repository: String) {
        // The send fails only if the receiver is closed. Then nothing is delivered any more.
        let _ = self.0.changed.send(repository);
    }

    /// The old objects of updates that are not delivered yet.
    pub fn undelivered_objects(&self, repository: &str) -> Vec<String> {
        let book = self.book(repository);
        let book = book.lock().unwrap_or_else(PoisonError::into_inner);
        let updates = book.transactions.iter().flat_map(|transaction| &transaction.updates);
        updates.filter_map(|update| update.old.clone()).collect()
    }
}

impl PushGuard {
    /// The id, for the environment of git.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Decides about transactions that did not report their end. The processes of the push have ended.
    pub async fn finish(mut self) {
        self.is_finished = true;
        let (journal, id) = (self.journal.clone(), self.id.clone());
        match spawn_blocking(move || journal.finish(&id)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "failed to end a push in the journal"),
            Err(error) => tracing::error!(%error, "the task that ends a push failed"),
        }
    }
}

impl Drop for PushGuard {
    fn drop(&mut self) {
        if !self.is_finished {
            // Transactions without an outcome keep this state until the next start. The transactions before them are
            // delivered.
            tracing::error!("a push was not ended in the journal");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
fn now() -> SystemTime {
    SystemTime::now()
}

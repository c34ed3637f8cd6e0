//! The journal of ref updates. It has one file per repository, with the updates that the control plane does not have
//! yet.
//!
//! git runs the hook while it holds the locks of a transaction's refs, and before it changes them. The hook appends the
//! updates to the file, so the file has the same order as the updates of each ref. When the transaction ends, the hook
//! appends its outcome, before git reports it to the client. After a crash, the node compares a transaction without an
//! outcome with the refs. The node numbers the updates that took effect in the order of the file, and delivers them
//! until the control plane has them. The control plane records each number once.

mod book;
mod delivery;
mod hooks;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use std::{fs, io, thread};

use anyhow::{Context as _, anyhow, ensure};
use chrono::{DateTime, SecondsFormat, Utc};
use protocol::GitGrant;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use self::book::{Book, MAX_NAMES, Transaction, read_refs};
use crate::hook::{HookSet, Phase, PushHooks, Step};
use crate::leftovers;
use crate::limits::NodePermit;
use crate::random;
use crate::repository::Repositories;
use crate::sync::Packs;
use crate::update::Update;

/// The maximum time for which the end of a push waits until the control plane has its updates.
const MAX_DELIVERY_WAIT: Duration = Duration::from_secs(2);

/// The journal. Cheap to clone.
#[derive(Clone)]
pub struct Journal(Arc<Inner>);

struct Inner {
    repositories: Repositories,
    states: Mutex<HashMap<String, Arc<RepositoryState>>>,
    pushes: Mutex<HashMap<String, Push>>,
    /// The ids of the repositories that have updates to deliver.
    changed: mpsc::UnboundedSender<String>,
}

/// The state of a repository, as far as the journal needs it.
struct RepositoryState {
    book: Mutex<Book>,
    /// Notified when updates were removed from the book, because the control plane has them.
    delivered: Notify,
    /// Locked while packs are synced, so that concurrent pushes neither sync a pack twice nor miss that a sync failed.
    packs: Mutex<Packs>,
}

impl RepositoryState {
    fn new(book: Book) -> Arc<Self> {
        Arc::new(Self { book: Mutex::new(book), delivered: Notify::new(), packs: Mutex::default() })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a function with the book in a thread that may block, because the book is locked while its file is synced.
    async fn access_book<T: Send + 'static>(
        self: &Arc<Self>,
        access: impl FnOnce(&mut Book) -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let state = Arc::clone(self);
        Ok(spawn_blocking(move || access(&mut state.book())).await?)
    }

    fn packs(&self) -> MutexGuard<'_, Packs> {
        self.packs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A push in progress.
#[derive(Debug, Clone)]
struct Push {
    repository: String,
    path: PathBuf,
    pusher: Option<String>,
    credential: Option<String>,
    /// The number of the last update that the control plane had when it authorized the push.
    last_update: i64,
    deploy: Option<Arc<DeployRef>>,
    /// The permit of the git process. It is released while the push only waits for its deploy or its delivery.
    permit: NodePermit,
    progress: Arc<Mutex<PushProgress>>,
}

/// The steps of a push that the node observed.
#[derive(Debug, Default)]
struct PushProgress {
    /// The updates that the client requested.
    commands: Vec<Update>,
    /// The names of the refs whose updates the hook recorded.
    recorded: HashSet<String>,
    /// Whether the node could not record or sync the end of a committed transaction.
    has_failed: bool,
    /// When the node asked for the decision with which the control plane last authorized the push again.
    authorized_at: Option<Instant>,
    /// The reason, for the client, why the node refused a transaction.
    refusal: Option<String>,
}

impl Push {
    fn progress(&self) -> MutexGuard<'_, PushProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ref of the deploy branch.
#[derive(Debug)]
struct DeployRef {
    name: String,
    /// The number of this push's update of the ref; `None` until the update is delivered.
    number: watch::Sender<Option<i64>>,
}

/// A registered push. When it is finished, the outcomes of its transactions are determined.
pub struct PushGuard {
    journal: Journal,
    id: String,
    hooks: HookSet,
    is_finished: bool,
}

/// The deletion of this ref is refused.
#[derive(Debug, thiserror::Error)]
#[error("{0} changed. Fetch, and delete it again.")]
pub struct StaleDeletion(String);

impl Journal {
    /// Loads the journal, and determines the outcomes of transactions that have none. No git process may be running.
    pub fn open(repositories: &Repositories) -> anyhow::Result<(Self, mpsc::UnboundedReceiver<String>)> {
        let dir = repositories.journal_dir();
        fs::create_dir_all(&dir)?;
        let (changed, receiver) = mpsc::unbounded_channel();
        let mut states = HashMap::new();
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
            states.insert(id, RepositoryState::new(book));
        }
        let repositories = repositories.clone();
        let inner = Inner { repositories, states: Mutex::new(states), pushes: Mutex::default(), changed };
        Ok((Self(Arc::new(inner)), receiver))
    }

    /// Registers a push to a repository.
    pub fn begin(&self, repository: &Path, grant: &GitGrant, permit: NodePermit) -> io::Result<PushGuard> {
        let id = random::token()?;
        let hooks = if grant.deploy_branch.is_some() { HookSet::Deploy } else { HookSet::Journal };
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
            progress: Arc::default(),
        };
        self.pushes().insert(id.clone(), push);
        Ok(PushGuard { journal: self.clone(), id, hooks, is_finished: false })
    }

    fn pushes(&self) -> MutexGuard<'_, HashMap<String, Push>> {
        self.0.pushes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self, repository: &str) -> Arc<RepositoryState> {
        let mut states = self.states();
        let new = || RepositoryState::new(Book::new(self.0.repositories.journal_dir().join(repository)));
        Arc::clone(states.entry(repository.to_owned()).or_insert_with(new))
    }

    /// Removes the state of an erased repository from memory, unless updates are not delivered yet.
    pub fn forget(&self, repository: &str) {
        let mut states = self.states();
        // A locked book is in use.
        let is_unused =
            |state: &Arc<RepositoryState>| state.book.try_lock().is_ok_and(|book| book.transactions.is_empty());
        if states.get(repository).is_some_and(is_unused) {
            states.remove(repository);
        }
    }

    fn states(&self) -> MutexGuard<'_, HashMap<String, Arc<RepositoryState>>> {
        self.0.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, id: &str) -> anyhow::Result<Push> {
        self.pushes().get(id).cloned().context("there is no such push")
    }

    /// Records a step of a transaction.
    fn record(&self, step: Step) -> anyhow::Result<()> {
        let Step { push: id, phase, mut updates } = step;
        updates.retain(is_recorded);
        match phase {
            _ if updates.is_empty() => Ok(()),
            Phase::Prepared => self.prepare(&id, updates),
            Phase::Committed | Phase::Aborted => self.end(&id, &updates, phase == Phase::Committed),
            Phase::Finished => Ok(()),
        }
    }

    /// Records the updates of a transaction, and syncs its objects and refs, before git changes the refs.
    fn prepare(&self, id: &str, updates: Vec<Update>) -> anyhow::Result<()> {
        let push = self.push(id)?;
        let state = self.state(&push.repository);
        let changes = updates.clone();
        thread::scope(|scope| {
            // Does not lock the book, because the objects of a large push take long to sync.
            let sync = || state.packs().sync_push(&push.path, &changes);
            let files = thread::Builder::new().spawn_scoped(scope, sync)?;
            let recorded = self.append(id, updates);
            files.join().map_err(|_| anyhow!("the thread that syncs a push failed"))??;
            recorded
        })?;
        push.progress().recorded.extend(changes.into_iter().map(|update| update.name));
        Ok(())
    }

    fn append(&self, id: &str, updates: Vec<Update>) -> anyhow::Result<()> {
        self.with_book(id, |book, Push { path, pusher, credential, last_update, .. }| {
            // Determines the outcome of an earlier transaction of this push, if its end was not reported.
            book.resolve(self.0.repositories.git(), &path, Some(id))?;
            if book.transactions.is_empty() {
                book.after = book.after.max(last_update);
            }
            let at: DateTime<Utc> = now().into();
            let at = at.to_rfc3339_opts(SecondsFormat::Millis, true);
            book.append(Transaction { push: id.to_owned(), pusher, credential, at, updates, outcome: None })
        })
    }

    fn end(&self, id: &str, updates: &[Update], is_committed: bool) -> anyhow::Result<()> {
        self.with_book(id, |book, push| {
            if let Err(error) = book.end(&push.path, id, updates, is_committed) {
                // git ignores the result of the hook at this step.
                push.progress().has_failed |= is_committed;
                return Err(error);
            }
            if push.deploy.is_some() {
                // The hook `post-receive` waits for the delivery. Other updates are delivered when git has ended.
                self.notify(push.repository);
            }
            Ok(())
        })
    }

    /// Locks the file of a push's repository.
    fn with_book(&self, id: &str, work: impl FnOnce(&mut Book, Push) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let state = self.state(&self.push(id)?.repository);
        let mut book = state.book();
        // Reads the push under the lock, because a push that has finished must not record anything.
        let push = self.push(id)?;
        work(&mut book, push)
    }

    /// Checks that refs have the values that a client expects.
    fn check_deletions(&self, id: &str, deletions: &[Update]) -> anyhow::Result<()> {
        for deletions in deletions.chunks(MAX_NAMES) {
            // Fails if the push has ended.
            let path = self.push(id)?.path;
            let names = deletions.iter().map(|deletion| deletion.name.as_str());
            let current = read_refs(self.0.repositories.git(), &path, names)?;
            let is_stale = |it: &&Update| it.old.is_none() || current.get(&it.name) != it.old.as_ref();
            if let Some(stale) = deletions.iter().find(is_stale) {
                return Err(StaleDeletion(stale.name.clone()).into());
            }
        }
        Ok(())
    }

    /// Determines the outcomes of the push's transactions, and returns the push. Its processes have ended.
    fn finish(&self, id: &str, has_succeeded: bool) -> anyhow::Result<Push> {
        let push = self.push(id)?;
        let state = self.state(&push.repository);
        let mut book = state.book();
        let resolved = book.resolve(self.0.repositories.git(), &push.path, Some(id));
        self.pushes().remove(id);
        drop(book);
        // The updates of other transactions are delivered even if one has no outcome.
        self.notify(push.repository.clone());
        resolved?;
        let progress = push.progress();
        ensure!(!progress.has_failed, "the end of a transaction was not recorded");
        if has_succeeded {
            self.check_recorded(&push, &progress)?;
        }
        drop(progress);
        Ok(push)
    }

    /// Checks that git ran the hook for each ref of a push that has the requested value. git skips a hook that it
    /// cannot execute.
    fn check_recorded(&self, push: &Push, progress: &PushProgress) -> anyhow::Result<()> {
        let is_unrecorded = |it: &&Update| is_recorded(it) && it.old != it.new && !progress.recorded.contains(&it.name);
        let unrecorded: Vec<&Update> = progress.commands.iter().filter(is_unrecorded).collect();
        let names = unrecorded.iter().map(|update| update.name.as_str());
        let current = read_refs(self.0.repositories.git(), &push.path, names)?;
        match unrecorded.iter().find(|update| current.get(&update.name) == update.new.as_ref()) {
            // A concurrent push that requested the same value is the other possible cause.
            Some(update) => Err(anyhow!("{} has the requested value, and git did not run the hook", update.name)),
            None => Ok(()),
        }
    }

    /// Waits until the control plane has the updates of a push, so that its client finds them in the API. Ends the wait
    /// after a short time: the updates are delivered in any case.
    async fn wait_for_delivery(&self, repository: &str, id: &str) {
        let state = self.state(repository);
        let wait = async {
            loop {
                let (delivered, id) = (state.delivered.notified(), id.to_owned());
                let waits = move |book: &mut Book| book.transactions.iter().any(|transaction| transaction.push == id);
                if !state.access_book(waits).await? {
                    return anyhow::Ok(());
                }
                delivered.await;
            }
        };
        // A timeout is not an error.
        if let Ok(Err(error)) = timeout(MAX_DELIVERY_WAIT, wait).await {
            tracing::error!(error = format!("{error:#}"), repository, "failed to wait for the delivery of a push");
        }
    }

    /// Starts the delivery of a repository's updates.
    fn notify(&self, repository: String) {
        // The send fails only after the receiver was closed, when nothing is delivered any more.
        let _ = self.0.changed.send(repository);
    }

    /// Returns the old objects of updates that are not delivered yet.
    pub async fn undelivered_objects(&self, repository: &str) -> anyhow::Result<Vec<String>> {
        let old = |book: &mut Book| -> Vec<String> {
            let updates = book.transactions.iter().flat_map(|transaction| &transaction.updates);
            updates.filter_map(|update| update.old.clone()).collect()
        };
        self.state(repository).access_book(old).await
    }
}

impl PushGuard {
    /// Returns the hooks that git runs for the push.
    pub fn hooks(&self) -> PushHooks<'_> {
        PushHooks { id: &self.id, set: self.hooks }
    }

    /// Registers commands of the push, and checks their deletions before git receives them. If git cannot read the old
    /// object that a client names, it deletes the ref without a check, and reports no old object.
    ///
    /// # Errors
    /// Returns [`StaleDeletion`], or another error, which only belongs in the log.
    pub async fn register(&self, commands: Vec<Update>) -> anyhow::Result<()> {
        // git itself refuses the deletion of other refs.
        let deletions = commands.iter().filter(|it| it.new.is_none() && is_recorded(it));
        let deletions: Vec<_> = deletions.cloned().collect();
        self.journal.push(&self.id)?.progress().commands.extend(commands);
        if deletions.is_empty() {
            return Ok(());
        }
        let (journal, id) = (self.journal.clone(), self.id.clone());
        spawn_blocking(move || journal.check_deletions(&id, &deletions)).await?
    }

    /// Returns the reason, for the client, why the node refused a transaction of the push.
    pub fn refusal(&self) -> Option<String> {
        self.journal.push(&self.id).ok()?.progress().refusal.clone()
    }

    /// Starts the delivery of the push's updates whose outcome is known.
    pub fn deliver(&self) {
        if let Ok(push) = self.journal.push(&self.id) {
            self.journal.notify(push.repository);
        }
    }

    /// Determines the outcomes of transactions that did not report their end, and waits a short time until the control
    /// plane has the updates. The processes of the push must have ended. `has_succeeded` states whether git reported
    /// success.
    ///
    /// # Errors
    /// Returns an error, which is in the log, if the push must not be reported as recorded.
    pub async fn finish(mut self, has_succeeded: bool) -> anyhow::Result<()> {
        self.is_finished = true;
        let (journal, id) = (self.journal.clone(), self.id.clone());
        let finished = spawn_blocking(move || journal.finish(&id, has_succeeded)).await;
        match finished.context("the task that ends a push failed").flatten() {
            Ok(push) => {
                push.permit.release();
                self.journal.wait_for_delivery(&push.repository, &self.id).await;
                Ok(())
            }
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "failed to end a push in the journal");
                Err(error)
            }
        }
    }
}

impl Drop for PushGuard {
    fn drop(&mut self) {
        if !self.is_finished {
            // The transactions keep this state until the next start. Only the transactions before them are delivered.
            tracing::error!("a push was not ended in the journal");
        }
    }
}

/// Returns whether the journal records updates of this ref.
fn is_recorded(update: &Update) -> bool {
    update.name.starts_with("refs/") && !update.name.starts_with("refs/svc/")
}

#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::core::Core;
    use crate::deploy::Deployer;
    use crate::metrics::Metrics;

    fn transaction(push: &str) -> Transaction {
        Transaction {
            push: push.to_owned(),
            pusher: None,
            credential: None,
            at: String::new(),
            updates: Vec::new(),
            outcome: Some(true),
        }
    }

    #[test]
    fn erased_repository_is_forgotten_unless_it_has_updates_to_deliver() {
        let (_folder, repositories) = Repositories::temporary();
        let (journal, _changed) = Journal::open(&repositories).unwrap();
        let repository = "rep_0000000000000001";
        let state = journal.state(repository);
        state.book().transactions = vec![transaction("push")];
        journal.forget(repository);
        assert!(journal.states().contains_key(repository));
        state.book().transactions.clear();
        journal.forget(repository);
        assert!(journal.states().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_a_push_waits_a_short_time_for_the_delivery_of_its_updates() {
        let (_folder, repositories) = Repositories::temporary();
        let (journal, _changed) = Journal::open(&repositories).unwrap();
        let repository = "rep_0000000000000001";
        let state = journal.state(repository);
        state.book().transactions = vec![transaction("first"), transaction("second")];
        let mut wait = pin!(journal.wait_for_delivery(repository, "first"));
        assert!(timeout(MAX_DELIVERY_WAIT / 2, wait.as_mut()).await.is_err());
        state.book().transactions.remove(0);
        state.delivered.notify_waiters();
        assert!(timeout(MAX_DELIVERY_WAIT / 4, wait).await.is_ok());
        // The updates of the other push are never delivered.
        journal.wait_for_delivery(repository, "second").await;
    }

    /// The book is locked while its file is synced, which takes long on a failing disk.
    #[tokio::test]
    async fn locked_book_does_not_block_the_runtime() {
        let (_folder, repositories) = Repositories::temporary();
        let (journal, changed) = Journal::open(&repositories).unwrap();
        let (core, metrics) = (Core::unreachable(), Metrics::new().unwrap());
        let deployer = Deployer::new(core.clone(), repositories, metrics.clone());
        let repository = "rep_0000000000000001";
        let state = journal.state(repository);
        let ((locked, is_locked), (release, is_released)) = (channel(), channel());
        let holder = thread::spawn(move || {
            let _book = state.book();
            locked.send(()).unwrap();
            is_released.recv_timeout(Duration::from_secs(60))
        });
        is_locked.recv().unwrap();
        let deliveries = tokio::spawn(journal.clone().deliver_all(core, deployer, changed, metrics));
        let waiting = journal.clone();
        let wait = tokio::spawn(async move {
            waiting.notify(repository.to_owned());
            waiting.wait_for_delivery(repository, "push").await;
            waiting.undelivered_objects(repository).await.unwrap()
        });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        journal.forget(repository);
        assert!(journal.states().contains_key(repository));
        release.send(()).unwrap();
        assert!(holder.join().unwrap().is_ok(), "the runtime waited for the book");
        assert!(wait.await.unwrap().is_empty());
        deliveries.abort();
    }
}

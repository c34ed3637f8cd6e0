//! The journal of ref updates: a file per repository with updates that the control plane does not have yet.
//!
//! The hook of git appends the updates of a transaction while git holds the locks of its refs, and before it changes
//! them. So the order of the file is the order of the updates of each ref. When the transaction ends, the hook appends
//! its outcome, before git reports it to the client. After a crash, a transaction without an outcome is compared with the
//! refs. The updates that took effect are numbered in the order of the file, and delivered until the control plane has
//! them; it records each number once.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use chrono::{DateTime, SecondsFormat, Utc};
use protocol::{GitDeployState, GitDeployed, GitGrant, GitUpdate, GitUpdates};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use crate::core::Core;
use crate::deploy::Deployer;
use crate::git::{Git, run};
use crate::hook::{OK, Phase, Step, Update};
use crate::leftovers::{self, remove_file};
use crate::limits::NodePermit;
use crate::metrics::Metrics;
use crate::random;
use crate::repository::Repositories;

/// The updates of one request to the control plane.
const MAX_UPDATES_PER_REQUEST: usize = 1000;
/// The largest message of a hook, in bytes: 2,000 updates of refs with long names.
const MAX_STEP_BYTES: u64 = 16 << 20;
/// The repositories whose updates are delivered at the same time.
const MAX_DELIVERIES: usize = 8;
/// The longest comparison of two commits.
const MAX_COMPARISON: Duration = Duration::from_secs(10);
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
/// The longest delay before a failed delivery is repeated.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);
/// How long a client waits for the deploy of its push.
const MAX_DEPLOY_WAIT: Duration = Duration::from_secs(300);

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
    /// The number of the push's update of the ref, when it was delivered.
    number: watch::Sender<Option<i64>>,
}

/// A registered push. Its transactions are resolved when it is finished.
pub struct PushGuard {
    journal: Journal,
    id: String,
    is_finished: bool,
}

/// The updates of a repository that are not delivered yet.
#[derive(Debug)]
struct Book {
    path: PathBuf,
    /// The number before that of the first update.
    after: i64,
    transactions: Vec<Transaction>,
    file: Option<File>,
    /// The bytes of the file that are complete lines.
    length: u64,
}

/// A transaction of refs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Transaction {
    push: String,
    pusher: Option<String>,
    #[serde(default)]
    credential: Option<String>,
    at: String,
    updates: Vec<Update>,
    /// Whether it took effect; `None` if that is not known yet.
    #[serde(skip)]
    outcome: Option<bool>,
}

/// A push that is refused, with the reason for the user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Line {
    /// The first line.
    After(i64),
    Prepared(Transaction),
    /// The outcome of the last transaction of a push without one.
    Ended {
        push: String,
        is_committed: bool,
    },
    /// The refs that the first transaction of a push without an outcome changed.
    Resolved {
        push: String,
        committed: Vec<String>,
    },
}

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
            // Only a closed receiver fails.
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
        // Again under the lock, because a finished push records nothing more.
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
                // An earlier transaction of the push whose end was not reported.
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

    /// Decides about the transactions of a push whose processes ended.
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
        // Only a closed receiver fails: nothing is delivered any more.
        let _ = self.0.changed.send(repository);
    }

    /// The old objects of updates that are not delivered yet.
    pub fn undelivered_objects(&self, repository: &str) -> Vec<String> {
        let book = self.book(repository);
        let book = book.lock().unwrap_or_else(PoisonError::into_inner);
        let updates = book.transactions.iter().flat_map(|transaction| &transaction.updates);
        updates.filter_map(|update| update.old.clone()).collect()
    }

    /// Serves the hooks.
    pub async fn serve_hooks(self, socket: PathBuf, deployer: Deployer) -> anyhow::Result<()> {
        remove_file(&socket)?;
        let listener = UnixListener::bind(&socket).context("cannot listen on the socket of the hooks")?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            let (journal, deployer) = (self.clone(), deployer.clone());
            tokio::spawn(async move {
                if let Err(error) = journal.answer(stream, &deployer).await {
                    tracing::error!(%error, "failed to answer a hook");
                }
            });
        }
    }

    async fn answer(&self, mut stream: UnixStream, deployer: &Deployer) -> anyhow::Result<()> {
        let mut step = Vec::new();
        (&mut stream).take(MAX_STEP_BYTES).read_to_end(&mut step).await?;
        let step: Step = serde_json::from_slice(&step)?;
        if step.phase == Phase::Finished {
            if let Some(text) = self.deploy(&step, deployer).await {
                stream.write_all(text.as_bytes()).await?;
            }
            return Ok(());
        }
        let journal = self.clone();
        let response = match spawn_blocking(move || journal.record(step)).await? {
            Ok(()) => OK.to_owned(),
            Err(error) => match error.downcast::<Refused>() {
                Ok(Refused(message)) => message,
                Err(error) => {
                    tracing::error!(error = format!("{error:#}"), "failed to record a transaction");
                    "its journal cannot be written".to_owned()
                }
            },
        };
        stream.write_all(response.as_bytes()).await?;
        Ok(())
    }

    /// Tells a push that waits for its deploy the number of its update.
    fn note_number(&self, push: &str, update: &GitUpdate) {
        let deploy = self.pushes().get(push).and_then(|push| push.deploy.clone());
        if let Some(deploy) = deploy.filter(|deploy| deploy.name == update.name) {
            deploy.number.send_replace(Some(update.number));
        }
    }

    /// Waits for the deploy of a push, which does not depend on the client. Returns the result for the user; `None` if the
    /// push is not deployed.
    async fn deploy(&self, step: &Step, deployer: &Deployer) -> Option<String> {
        let Push { repository, deploy, permit, .. } = self.pushes().get(&step.push).cloned()?;
        let deploy = deploy?;
        step.updates.iter().find(|update| update.name == deploy.name && update.new.is_some())?;
        permit.release();
        let wait = async {
            let number = *deploy.number.subscribe().wait_for(Option::is_some).await?;
            deployer.finish(&repository, number.context("the update has a number")?).await
        };
        match timeout(MAX_DEPLOY_WAIT, wait).await {
            Ok(Ok(state)) => show(state),
            Ok(Err(error)) => {
                tracing::warn!(error = format!("{error:#}"), repository, "a client does not wait for its deploy");
                Some(
                    "not deployed yet: the service is not available; the deploy is repeated until it succeeds\n"
                        .to_owned(),
                )
            }
            Err(_) => {
                Some("not deployed yet: the deploy continues; `svc deployments` lists it when it ends\n".to_owned())
            }
        }
    }

    /// Delivers updates to the control plane, and starts their deploys: of several repositories at the same time, and of each in order.
    pub async fn deliver_all(
        self,
        core: Core,
        deployer: Deployer,
        mut changed: mpsc::UnboundedReceiver<String>,
        metrics: Metrics,
    ) {
        let permits = Arc::new(Semaphore::new(MAX_DELIVERIES));
        let (mut running, mut again) = (HashSet::new(), HashSet::new());
        let mut deliveries = JoinSet::new();
        loop {
            let next = tokio::select! {
                changed = changed.recv() => {
                    let Some(repository) = changed else { return };
                    if running.contains(&repository) {
                        again.insert(repository);
                        continue;
                    }
                    repository
                }
                Some(ended) = deliveries.join_next() => {
                    // A panic. The updates stay in the journal, and a restart delivers them.
                    let Ok(repository) = ended else { return };
                    running.remove(&repository);
                    if !again.remove(&repository) {
                        continue;
                    }
                    repository
                }
            };
            running.insert(next.clone());
            let (journal, core, deployer) = (self.clone(), core.clone(), deployer.clone());
            let (metrics, permits) = (metrics.clone(), Arc::clone(&permits));
            deliveries.spawn(async move {
                journal.deliver_until_done(&core, &deployer, &next, &metrics, &permits).await;
                next
            });
        }
    }

    async fn deliver_until_done(
        &self,
        core: &Core,
        deployer: &Deployer,
        repository: &str,
        metrics: &Metrics,
        permits: &Semaphore,
    ) {
        let mut delay = MIN_RETRY_DELAY;
        loop {
            let delivered = {
                let _permit = permits.acquire().await;
                self.deliver(core, deployer, repository).await
            };
            match delivered {
                Ok(delivered) => return metrics.delivered(delivered),
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), repository, "failed to deliver updates of refs");
                }
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(MAX_RETRY_DELAY);
        }
    }

    /// Delivers the updates of a repository that are known to have taken effect. Returns their number.
    async fn deliver(&self, core: &Core, deployer: &Deployer, repository: &str) -> anyhow::Result<usize> {
        let (book, mut delivered) = (self.book(repository), 0);
        loop {
            let (transactions, after) = {
                let book = book.lock().unwrap_or_else(PoisonError::into_inner);
                (book.decided(), book.after)
            };
            if transactions.is_empty() {
                return Ok(delivered);
            }
            let (repositories, count) = (&self.0.repositories, transactions.len());
            let (git, path) = (repositories.git().clone(), repositories.path(repository)?);
            let updates = updates(&git, &path, transactions, after).await;
            for chunk in updates.chunks(MAX_UPDATES_PER_REQUEST) {
                let report = chunk.iter().map(|(_, update)| update.clone()).collect();
                let receipt = core.report(&GitUpdates { repository: repository.to_owned(), updates: report }).await?;
                delivered += chunk.len();
                if receipt.has_deploys {
                    // The client of the push need not wait for it.
                    drop(deployer.start(repository.to_owned()));
                }
                chunk.iter().for_each(|(push, update)| self.note_number(push, update));
            }
            let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
            book.forget(count, after + i64::try_from(updates.len())?)?;
        }
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
            // Transactions without an outcome stay so until the next start. Those before them are delivered.
            tracing::error!("a push was not ended in the journal");
        }
    }
}

impl Book {
    const fn new(path: PathBuf) -> Self {
        Self { path, after: 0, transactions: Vec::new(), file: None, length: 0 }
    }

    fn load(path: &Path) -> anyhow::Result<Self> {
        let mut book = Self::new(path.to_owned());
        let text = fs::read(path)?;
        let (mut lines, mut length) = (text.split_inclusive(|byte| *byte == b'\n').peekable(), 0);
        while let Some(line) = lines.next() {
            // A crash can leave the last line incomplete. Its transaction was not confirmed, so git did not continue it.
            match serde_json::from_slice(line).ok().filter(|_| line.ends_with(b"\n")) {
                Some(Line::After(after)) => book.after = after,
                Some(Line::Prepared(transaction)) => book.transactions.push(transaction),
                Some(Line::Ended { push, is_committed }) => {
                    if let Some(open) = book.transactions.iter_mut().rev().find(|it| it.is_open(&push)) {
                        open.outcome = Some(is_committed);
                    }
                }
                Some(Line::Resolved { push, committed }) => {
                    if let Some(open) = book.transactions.iter_mut().find(|it| it.is_open(&push)) {
                        open.resolve(&committed);
                    }
                }
                None => {
                    ensure!(lines.peek().is_none(), "line {} is malformed", book.transactions.len());
                    break;
                }
            }
            length += u64::try_from(line.len())?;
        }
        let file = OpenOptions::new().append(true).open(path)?;
        file.set_len(length)?;
        (book.file, book.length) = (Some(file), length);
        Ok(book)
    }

    /// Appends a line. After an error, the file is as before.
    fn write(&mut self, line: &Line) -> anyhow::Result<()> {
        let mut text = Vec::new();
        let is_new = self.file.is_none();
        if is_new {
            encode(&Line::After(self.after), &mut text)?;
        }
        encode(line, &mut text)?;
        let mut file = match self.file.take() {
            Some(file) => file,
            None => OpenOptions::new().create(true).append(true).open(&self.path)?,
        };
        let append = |file: &mut File| {
            if is_new {
                file.set_len(0)?;
            }
            file.write_all(&text)?;
            file.sync_data()?;
            if is_new && let Some(directory) = self.path.parent() {
                File::open(directory)?.sync_all()?;
            }
            Ok::<_, io::Error>(())
        };
        let length = if is_new { 0 } else { self.length };
        if let Err(error) = append(&mut file) {
            if is_new {
                fs::remove_file(&self.path)?;
            } else {
                // Without the file, the next line would begin a new one. So the incomplete line must go.
                file.set_len(length)?;
                self.file = Some(file);
            }
            return Err(error.into());
        }
        (self.file, self.length) = (Some(file), length + u64::try_from(text.len())?);
        Ok(())
    }

    fn append(&mut self, transaction: Transaction) -> anyhow::Result<()> {
        self.write(&Line::Prepared(transaction.clone()))?;
        self.transactions.push(transaction);
        Ok(())
    }

    /// Records the end of the push's transaction with these updates. Without such a transaction, it was not recorded, so
    /// that git aborts it.
    fn end(&mut self, push: &str, updates: &[Update], is_committed: bool) -> anyhow::Result<()> {
        let is_ended = |it: &Transaction| it.is_open(push) && it.updates == updates;
        let Some(index) = self.transactions.iter().rposition(is_ended) else { return Ok(()) };
        self.write(&Line::Ended { push: push.to_owned(), is_committed })?;
        if let Some(ended) = self.transactions.get_mut(index) {
            ended.outcome = Some(is_committed);
        }
        Ok(())
    }

    /// Decides about the transactions of a push without an outcome; of all pushes for `None`. An update took effect if the
    /// ref has its new value, or if a later update replaced that value. git changes the refs of a transaction one by one,
    /// so some of them can have changed.
    fn resolve(&mut self, git: &Git, repository: &Path, push: Option<&str>) -> anyhow::Result<()> {
        for index in 0..self.transactions.len() {
            let (before, after) = self.transactions.split_at(index + 1);
            let Some(transaction) = before.last() else { continue };
            if transaction.outcome.is_some() || push.is_some_and(|push| transaction.push != push) {
                continue;
            }
            let mut committed = Vec::new();
            for update in &transaction.updates {
                let later = after.iter().flat_map(|it| &it.updates).find(|later| later.name == update.name);
                let current = match later {
                    Some(later) => later.old.clone(),
                    None => read_ref(git, repository, &update.name)?,
                };
                if current == update.new {
                    committed.push(update.name.clone());
                }
            }
            let push = transaction.push.clone();
            self.write(&Line::Resolved { push, committed: committed.clone() })?;
            if let Some(transaction) = self.transactions.get_mut(index) {
                transaction.resolve(&committed);
            }
        }
        Ok(())
    }

    /// The transactions before the first one without an outcome.
    fn decided(&self) -> Vec<Transaction> {
        self.transactions.iter().take_while(|transaction| transaction.outcome.is_some()).cloned().collect()
    }

    /// Removes the first transactions. `after` is the number of their last update.
    fn forget(&mut self, count: usize, after: i64) -> anyhow::Result<()> {
        self.transactions.drain(..count);
        self.after = after;
        if self.transactions.is_empty() {
            self.file = None;
            fs::remove_file(&self.path)?;
            return Ok(());
        }
        // The file is replaced as a whole: a line cannot be removed. Temporary files are not in the folder of the journal.
        let folder = self.path.parent().and_then(Path::parent).context("the journal has a directory")?.join("new");
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        let mut text = Vec::new();
        encode(&Line::After(after), &mut text)?;
        for transaction in &self.transactions {
            encode(&Line::Prepared(transaction.clone()), &mut text)?;
            if let Some(is_committed) = transaction.outcome {
                encode(&Line::Ended { push: transaction.push.clone(), is_committed }, &mut text)?;
            }
        }
        new.write_all(&text)?;
        new.as_file().sync_data()?;
        let file = new.persist(&self.path)?;
        (self.file, self.length) = (Some(file), u64::try_from(text.len())?);
        Ok(())
    }
}

impl Transaction {
    fn is_open(&self, push: &str) -> bool {
        self.push == push && self.outcome.is_none()
    }

    /// Keeps only the updates of these refs.
    fn resolve(&mut self, committed: &[String]) {
        self.updates.retain(|update| committed.contains(&update.name));
        self.outcome = Some(true);
    }
}

/// Appends a line to a text.
fn encode(line: &Line, text: &mut Vec<u8>) -> serde_json::Result<()> {
    serde_json::to_writer(&mut *text, line)?;
    text.push(b'\n');
    Ok(())
}

/// The result of a deploy, for the user; `None` if the push is not deployed.
fn show(state: GitDeployState) -> Option<String> {
    match state {
        GitDeployState::None => None,
        GitDeployState::Pending => Some("not deployed yet: the deploy is repeated until it succeeds\n".to_owned()),
        GitDeployState::Deployed(GitDeployed { version, url, notes }) => {
            let at = url.map(|url| format!(" at {url}")).unwrap_or_default();
            let notes: String = notes.iter().map(|note| format!("{note}\n")).collect();
            Some(format!("deployed version {version}{at}\n{notes}"))
        }
        GitDeployState::Rejected(reason) => Some(format!("not deployed: {reason}\n")),
    }
}

/// The updates of transactions that took effect, with their pushes and their numbers.
async fn updates(git: &Git, repository: &Path, transactions: Vec<Transaction>, after: i64) -> Vec<(String, GitUpdate)> {
    let (mut numbered, mut number) = (Vec::new(), after);
    for transaction in transactions.into_iter().filter(|transaction| transaction.outcome == Some(true)) {
        let Transaction { push, pusher, credential, at, updates, .. } = transaction;
        for Update { name, old, new } in updates {
            number += 1;
            let forced = match (&old, &new) {
                (Some(old), Some(new)) if name.starts_with("refs/heads/") => {
                    !is_ancestor(git, repository, old, new).await
                }
                _ => false,
            };
            let (pusher, credential, at) = (pusher.clone(), credential.clone(), at.clone());
            numbered.push((push.clone(), GitUpdate { number, name, old, new, forced, pusher, credential, at }));
        }
    }
    numbered
}

/// Whether an update keeps all commits. If git does not decide in time, it is taken for a forced one.
async fn is_ancestor(git: &Git, repository: &Path, old: &str, new: &str) -> bool {
    let mut command = git.maintenance(Some(repository));
    command.args(["merge-base", "--is-ancestor", old, new]);
    run(command, MAX_COMPARISON).await.unwrap_or_else(|error| {
        tracing::warn!(error = format!("{error:#}"), "cannot compare the commits of an update");
        false
    })
}

/// The object of a ref; `None` if the ref does not exist.
fn read_ref(git: &Git, repository: &Path, name: &str) -> anyhow::Result<Option<String>> {
    if !repository.is_dir() {
        return Ok(None);
    }
    let mut command = git.maintenance(Some(repository));
    let output =
        command.args(["for-each-ref", "--format=%(objectname) %(refname)", name]).stdout(Stdio::piped()).output()?;
    ensure!(output.status.success(), "git for-each-ref failed: {}", output.status);
    let listed = String::from_utf8(output.stdout)?;
    let mut refs = listed.lines().filter_map(|line| line.split_once(' '));
    Ok(refs.find_map(|(object, found)| (found == name).then(|| object.to_owned())))
}

#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
fn now() -> SystemTime {
    SystemTime::now()
}

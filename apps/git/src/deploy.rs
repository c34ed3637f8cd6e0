//! Deploys pushes: packs the tree of a commit, and uploads the bundle to the control plane.
//!
//! The control plane has the list of deploys, and records one result for each. The node requests the next deploy after
//! it has delivered updates of refs, and every few seconds. So a deploy survives a crash of the node or of the control
//! plane.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bundle::pack::{Folder as _, Kind, PackError};
use bundle::{Limits, MANIFEST_PATH, MAX_FILE_NAMES_BYTES};
use protocol::{GitDeploy, GitDeployState, GitNextDeploy};
use semaphores::KeyedSemaphores;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::core::Core;
use crate::metrics::Metrics;
use crate::objects::{ObjectReader, is_ended};
use crate::repository::{Repositories, Use};
use crate::tree::CommitTree;

/// The maximum number of commits that are packed or uploaded at the same time. Others wait.
const MAX_DEPLOYS: usize = 2;
/// The maximum duration of packing a commit.
const PACK_TIMEOUT: Duration = Duration::from_secs(120);
/// The interval at which deploys that failed, or whose node was killed, are repeated.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum number of attempts to pack a commit if git ends while it reads the objects. The reason can be a signal,
/// or an object that always ends git.
const MAX_ATTEMPTS: u32 = 10;
/// The maximum length of a message for the user, in characters.
const MAX_MESSAGE_CHARACTERS: usize = 500;

/// Deploys pushes. Cheap to clone.
#[derive(Clone)]
pub struct Deployer(Arc<Inner>);

struct Inner {
    core: Core,
    repositories: Repositories,
    metrics: Metrics,
    permits: Semaphore,
    /// The turn of each repository, user and organization, by its id. They serialize the deploys of each.
    turns: KeyedSemaphores<String>,
    /// The permit of the one background task that waits for the turn of a repository, by its id.
    waiting: KeyedSemaphores<String>,
    attempts: FailedAttempts,
}

/// The deploys that failed because git ended, by the id of their repository: their numbers, and the number of attempts.
#[derive(Default)]
struct FailedAttempts(Mutex<HashMap<String, (i64, u32)>>);

/// A packed commit.
enum Packed {
    Bundle {
        file: File,
        /// The first line of the commit's message.
        message: String,
    },
    /// The commit cannot be packed. Contains the reason for the user.
    Rejected(String),
}

impl Deployer {
    pub fn new(core: Core, repositories: Repositories, metrics: Metrics) -> Self {
        let (permits, turns, waiting) = (Semaphore::new(MAX_DEPLOYS), KeyedSemaphores::new(1), KeyedSemaphores::new(1));
        let attempts = FailedAttempts::default();
        Self(Arc::new(Inner { core, repositories, metrics, permits, turns, waiting, attempts }))
    }

    /// Starts the pending deploys at an interval, one page of repositories at a time. Runs until it is aborted.
    pub async fn repeat(self) {
        let mut ticks = interval(RETRY_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut after = None;
        loop {
            ticks.tick().await;
            match self.0.core.deployable(after.as_deref()).await {
                Ok(repositories) => {
                    // After the last page, continue with the first page.
                    after = repositories.last().cloned();
                    for repository in repositories.into_iter().filter(|repository| self.is_idle(repository)) {
                        self.start(repository);
                    }
                }
                Err(error) => tracing::warn!(%error, "failed to list pushes to deploy"),
            }
        }
    }

    /// Starts to deploy the waiting pushes of a repository in the background. If a task already waits for the
    /// repository's turn, it deploys them.
    pub fn start(&self, repository: String) {
        let Ok(waiting) = self.0.waiting.of(repository.clone()).try_acquire_owned() else { return };
        let deployer = self.clone();
        tokio::spawn(async move {
            let _turn = deployer.0.turns.of(repository.clone()).acquire_owned().await?;
            // This task may miss pushes that are recorded from now on.
            drop(waiting);
            deployer.try_deploy_all(&repository).await
        });
    }

    /// Deploys the waiting pushes of a repository. Returns the state of the push with this number.
    pub async fn finish(&self, repository: &str, number: i64) -> anyhow::Result<GitDeployState> {
        let state = self.0.core.deploy_state(repository, number).await?;
        if !matches!(state, GitDeployState::Pending) {
            return Ok(state);
        }
        // Only the deploy continues if this future is dropped. Otherwise, each push would leave a task that waits.
        let turn = self.0.turns.of(repository.to_owned()).acquire_owned().await?;
        let (deployer, id) = (self.clone(), repository.to_owned());
        let deploy = tokio::spawn(async move {
            let _turn = turn;
            deployer.try_deploy_all(&id).await
        });
        deploy.await??;
        self.0.core.deploy_state(repository, number).await
    }

    /// Calls [`Self::deploy_all`], and logs and counts a failure.
    async fn try_deploy_all(&self, repository: &str) -> anyhow::Result<()> {
        self.deploy_all(repository).await.inspect_err(|error| {
            self.0.metrics.deploy("failed", 1);
            tracing::warn!(error = format!("{error:#}"), repository, "failed to deploy a push");
        })
    }

    /// Deploys the waiting pushes of a repository in the order of their numbers. The caller has the repository's turn.
    async fn deploy_all(&self, repository: &str) -> anyhow::Result<()> {
        let mut last = 0;
        loop {
            let GitNextDeploy { deploy, rejected } = self.0.core.next_deploy(repository).await?;
            self.0.metrics.deploy("rejected", rejected);
            let Some(deploy) = deploy else { return Ok(()) };
            ensure!(deploy.number > last, "the deploy {} did not end", deploy.number);
            last = deploy.number;
            self.deploy(repository, &deploy).await?;
        }
    }

    async fn deploy(&self, repository: &str, deploy: &GitDeploy) -> anyhow::Result<()> {
        let Inner { core, permits, turns, metrics, attempts, .. } = &*self.0;
        // The turns are acquired before the permit. So a user or an organization with many waiting pushes uses only one
        // permit, and one place in the queue for it. With the user's turn as the first one, a user also has only one
        // place in the queues of organizations.
        let _of_user = turns.of(deploy.user.clone()).acquire_owned().await?;
        let _of_org = turns.of(deploy.org.clone()).acquire_owned().await?;
        let _permit = permits.acquire().await?;
        let outcome = match self.pack(repository, deploy).await? {
            Packed::Bundle { file, message } => match core.upload(repository, deploy.number, &message, file).await? {
                GitDeployState::Deployed(_) => "deployed",
                _ => "rejected",
            },
            Packed::Rejected(reason) => {
                let printable =
                    |character: char| if character.is_control() { char::REPLACEMENT_CHARACTER } else { character };
                let reason = reason.chars().take(MAX_MESSAGE_CHARACTERS).map(printable).collect();
                core.reject_deploy(repository, deploy.number, reason).await?;
                "rejected"
            }
        };
        attempts.forget(repository);
        metrics.deploy(outcome, 1);
        tracing::info!(repository, number = deploy.number, outcome, "ended the deploy of a push");
        Ok(())
    }

    async fn pack(&self, id: &str, deploy: &GitDeploy) -> anyhow::Result<Packed> {
        let Inner { repositories, attempts, .. } = &*self.0;
        let repository = repositories.find(id, Use::Read).await?.context("the repository is not on the disk")?;
        let reader = ObjectReader::start(repositories.git(), &repository.path)?;
        let (process, file, deploy) = (reader.process(), repositories.temporary_file()?, deploy.clone());
        let number = deploy.number;
        let pack = spawn_blocking(move || {
            let _repository = repository;
            pack(reader, &deploy, file)
        });
        match timeout(PACK_TIMEOUT, pack).await {
            Ok(packed) => packed?.or_else(|error| {
                let is_ended = error.downcast_ref::<io::Error>().is_some_and(is_ended);
                if is_ended && attempts.record(id, number) >= MAX_ATTEMPTS {
                    return Ok(Packed::Rejected("git could not read the commit".to_owned()));
                }
                Err(error)
            }),
            Err(_) => {
                process.end();
                let limit = PACK_TIMEOUT.as_secs();
                Ok(Packed::Rejected(format!("the files of the commit could not be packed within {limit} seconds")))
            }
        }
    }

    fn is_idle(&self, repository: &str) -> bool {
        self.0.turns.of(repository.to_owned()).try_acquire().is_ok()
    }
}

impl FailedAttempts {
    /// Records a failed attempt of a deploy. Returns the number of its failed attempts.
    fn record(&self, repository: &str, number: i64) -> u32 {
        let mut attempts = self.lock();
        let (deploy, count) = attempts.entry(repository.to_owned()).or_insert((number, 0));
        if *deploy != number {
            (*deploy, *count) = (number, 0);
        }
        *count += 1;
        *count
    }

    /// Removes the attempts of a repository, whose deploy has ended.
    fn forget(&self, repository: &str) {
        self.lock().remove(repository);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (i64, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Packs the tree of a commit.
fn pack(reader: ObjectReader, deploy: &GitDeploy, mut file: File) -> anyhow::Result<Packed> {
    let GitDeploy { commit, compressed, unpacked, entries, .. } = deploy;
    let limits =
        Limits { compressed: *compressed, unpacked: *unpacked, entries: *entries, names: MAX_FILE_NAMES_BYTES };
    let read = |error| PackError::Read { path: MANIFEST_PATH.into(), error };
    let packed = CommitTree::open(reader, commit).map_err(read).and_then(|mut tree| {
        let root = tree.list("".as_ref(), None).map_err(read)?;
        if !root.iter().any(|entry| entry.name == MANIFEST_PATH && entry.kind == Kind::File) {
            return Ok(None);
        }
        bundle::pack::pack(&mut tree, &limits, &file).map(|()| Some(tree.message))
    });
    match packed {
        Ok(Some(message)) => {
            file.rewind()?;
            Ok(Packed::Bundle { file, message })
        }
        Ok(None) => Ok(Packed::Rejected(format!("the commit has no file {MANIFEST_PATH} at its root"))),
        Err(PackError::Write(error)) => Err(error.into()),
        Err(PackError::Read { error, .. } | PackError::IgnoreFile { error, .. }) if is_ended(&error) => {
            Err(error.into())
        }
        Err(error) => Ok(Packed::Rejected(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::OwnedSemaphorePermit;

    use super::*;
    use crate::random;

    fn deployer(core: Core) -> (tempfile::TempDir, Deployer) {
        let (folder, repositories) = Repositories::temporary();
        (folder, Deployer::new(core, repositories, Metrics::new().unwrap()))
    }

    async fn acquire_turn(deployer: &Deployer, repository: &str) -> OwnedSemaphorePermit {
        deployer.0.turns.of(repository.to_owned()).acquire_owned().await.unwrap()
    }

    /// Returns the number of tasks of a deployer.
    fn tasks(deployer: &Deployer) -> usize {
        Arc::strong_count(&deployer.0) - 1
    }

    #[tokio::test]
    async fn one_task_waits_for_the_turn_of_a_repository() {
        let (_folder, deployer) = deployer(Core::unreachable());
        for _ in 0..2 {
            let turns = [acquire_turn(&deployer, "a").await, acquire_turn(&deployer, "b").await];
            for repository in ["a", "a", "b", "a"] {
                deployer.start(repository.to_owned());
            }
            assert_eq!(tasks(&deployer), 2);
            drop(turns);
            while tasks(&deployer) > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    /// The client disconnects while another push of the repository is deployed.
    #[tokio::test]
    async fn abandoned_wait_for_a_deploy_leaves_no_task() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (_folder, deployer) = deployer(Core::at(&listener.local_addr().unwrap().to_string()));
        let turn = acquire_turn(&deployer, "a").await;
        let answer = async |state: GitDeployState| {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            let body = serde_json::to_string(&state).unwrap();
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            // The client closes the connection after it has read the response.
            stream.read_to_end(&mut request).await.unwrap();
        };
        let mut wait = Box::pin(deployer.finish("a", 2));
        tokio::select! {
            state = &mut wait => panic!("the push did not wait: {state:?}"),
            () = answer(GitDeployState::Pending) => {}
        }
        assert!(wait.as_mut().now_or_never().is_none());
        assert_eq!(tasks(&deployer), 0);
        drop(wait);
        drop(turn);
        assert!(deployer.is_idle("a"));
        // The result of a deploy that has ended does not need the turn.
        let _turn = acquire_turn(&deployer, "a").await;
        let rejected = GitDeployState::Rejected("too many".to_owned());
        let (state, ()) = tokio::join!(deployer.finish("a", 2), answer(rejected.clone()));
        assert_eq!(state.unwrap(), rejected);
    }

    /// An error of the output is not a reason to reject the commit.
    #[tokio::test]
    async fn commit_is_not_rejected_if_the_output_fails() {
        let (folder, repositories) = Repositories::temporary();
        let repository = repositories.open_or_create("rep_0000000000000001", "main", Use::Read).await.unwrap();
        // More than the buffers before the output.
        let noise: Vec<u8> = (0..4000).flat_map(|_| random::bytes().unwrap()).collect();
        let header = "commit refs/heads/main\ncommitter Ada <ada@example.org> 0 +0000\ndata 1\nm\n";
        let manifest = "M 100644 inline svc.json\ndata 2\n{}\n";
        let asset = format!("M 100644 inline assets/a\ndata {}\n", noise.len());
        let commit = [header.as_bytes(), manifest.as_bytes(), asset.as_bytes(), &noise, b"\n"].concat();
        let input = folder.path().join("input");
        std::fs::write(&input, commit).unwrap();
        let mut import = repositories.git().maintenance(Some(&repository.path));
        import.args(["fast-import", "--quiet"]).stdin(Stdio::from(File::open(&input).unwrap()));
        assert!(import.status().unwrap().success());
        let deploy = GitDeploy {
            number: 1,
            commit: "refs/heads/main".to_owned(),
            user: "usr_1".to_owned(),
            org: "org_1".to_owned(),
            compressed: 1 << 20,
            unpacked: 1 << 20,
            entries: 10,
        };
        let pack = |file| pack(ObjectReader::start(repositories.git(), &repository.path).unwrap(), &deploy, file);
        assert!(
            matches!(pack(repositories.temporary_file().unwrap()), Ok(Packed::Bundle { message, .. }) if message == "m")
        );
        // This file is not open for writing.
        assert!(pack(File::open(&input).unwrap()).is_err());
    }

    #[test]
    fn attempts_are_counted_for_each_deploy() {
        let attempts = FailedAttempts::default();
        let record = |repository: &str, number| attempts.record(repository, number);
        assert_eq!((record("a", 1), record("a", 1), record("b", 1)), (1, 2, 1));
        assert_eq!((record("a", 2), record("a", 2)), (1, 2));
        attempts.forget("a");
        assert_eq!((record("a", 2), record("b", 1)), (1, 2));
    }
}

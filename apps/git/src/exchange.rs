//! Connects a client to a git process, for one HTTP request or one SSH channel.

mod feed;

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use protocol::{GitAccess, GitAccessRequest, GitGrant, SecretValue};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use self::feed::{Feeder, PushChecks, forward_output};
use crate::commands::CommandReader;
use crate::core::Core;
use crate::git::{Process, Program};
use crate::journal::{Journal, PushGuard};
use crate::limits::{AccessLimit, Busy, Client, ClientLimits, NodePermit, ProgramLimit, ProgramPermit};
use crate::metrics::{Metrics, Transport};
use crate::path::RepositoryPath;
use crate::progress::Progress;
use crate::repository::{Repositories, Repository, Use};
use crate::storage::{PushLimits, PushStorage, SizeReporter, StorageRefusal};

/// The maximum time for which the node reads the rest of an input after git has ended.
const SKIP_TIMEOUT: Duration = Duration::from_secs(300);
/// The longest exchange.
const TIMEOUT: Duration = Duration::from_secs(3600);
/// The maximum size of an exchange's input, except for pushes, in bytes. The input lists the commits that the client
/// has and requests, and git holds the whole list in memory.
const MAX_REQUEST_BYTES: u64 = 64 << 20;
/// git may write files of this size for each push, such as the list of all refs, in bytes.
const MIN_FILE_BYTES: u64 = 64 << 20;

/// Serves git clients. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    core: Core,
    repositories: Repositories,
    journal: Journal,
    sizes: SizeReporter,
    accesses: AccessLimit,
    programs: ProgramLimit,
    metrics: Metrics,
    min_free_bytes: u64,
    /// The maximum size of a push's input, in bytes. It is twice the limit of a push, so that git itself rejects a push
    /// that is slightly too large, and the client receives git's error.
    max_input: u64,
}

/// The credential of a client.
pub enum Credential {
    /// A personal access token, or another password.
    Password(SecretValue),
    /// The fingerprint of an SSH key whose private key the client has.
    SshKey(String),
}

/// A git process that serves a client.
pub struct Exchange {
    process: Process,
    repository: Repository,
    max_input: u64,
    push: Option<Push>,
    permit: Option<ProgramPermit>,
}

/// The push of an exchange.
struct Push {
    guard: PushGuard,
    storage: PushStorage,
    repository: String,
    sizes: SizeReporter,
}

/// A part of the output of git.
#[derive(Debug)]
pub enum Output {
    Data(Bytes),
    /// Text from git for the user.
    Error(Bytes),
    /// The reason why the node refuses the input, or a change of refs.
    Refusal(String),
    /// The client must not treat the output as complete.
    Abort,
}

/// How a git process communicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode<'a> {
    pub program: Program,
    /// Additional arguments, which depend on the transport.
    pub arguments: &'a [&'a str],
    /// The protocol version that the client requested.
    pub protocol: Option<&'a str>,
}

impl Service {
    pub fn new(
        core: Core,
        repositories: Repositories,
        journal: Journal,
        sizes: SizeReporter,
        metrics: Metrics,
        (clients, pushes): (ClientLimits, PushLimits),
    ) -> Self {
        let (accesses, programs) = (AccessLimit::new(clients.requests_per_address), ProgramLimit::new(clients));
        let PushLimits { max_bytes, min_free_bytes } = pushes;
        let max_input = max_bytes.saturating_mul(2);
        Self { core, repositories, journal, sizes, accesses, programs, metrics, min_free_bytes, max_input }
    }

    /// Decides whether an access of the client at this address is allowed. Asks the control plane, unless the decision
    /// is known: no anonymous client can push, such as in the first request of each push over HTTP, and no repository
    /// has a malformed path, which is `None`.
    ///
    /// # Errors
    /// Returns [`Busy`], or another error if the control plane is unavailable.
    pub async fn authorize(
        &self,
        (transport, address): (Transport, IpAddr),
        credential: Option<Credential>,
        path: Option<RepositoryPath<'_>>,
        write: bool,
    ) -> anyhow::Result<GitAccess> {
        let decide = async {
            let RepositoryPath { org, project, repository } = match (path, &credential) {
                (Some(path), Some(_)) => path,
                (Some(path), None) if !write => path,
                (None, Some(_)) => return Ok(GitAccess::NotFound),
                (_, None) => return Ok(GitAccess::Unauthenticated),
            };
            let (org, project, repository) = (org.to_owned(), project.to_owned(), repository.to_owned());
            let (password, ssh_key) = match credential {
                None => (None, None),
                Some(Credential::Password(password)) => (Some(password), None),
                Some(Credential::SshKey(fingerprint)) => (None, Some(fingerprint)),
            };
            let access = GitAccessRequest { password, ssh_key, org, project, repository, write };
            self.ask(address, self.core.authorize(&access)).await
        };
        let access = decide.await;
        self.count(transport, &access, |access| match access {
            GitAccess::Allowed(_) => "allowed",
            GitAccess::Unauthenticated => "unauthenticated",
            GitAccess::Forbidden(_) => "forbidden",
            GitAccess::NotFound => "not_found",
        });
        access
    }

    /// Asks the control plane for the user of an SSH key. Returns `None` if the key is not registered.
    ///
    /// # Errors
    /// Returns [`Busy`], or another error if the control plane is unavailable.
    pub async fn authenticate(&self, address: IpAddr, fingerprint: String) -> anyhow::Result<Option<String>> {
        let user = self.ask(address, self.core.user_of_key(fingerprint)).await;
        self.count(Transport::Ssh, &user, |user| if user.is_some() { "authenticated" } else { "unauthenticated" });
        user
    }

    /// Counts a decision, or its failure.
    fn count<T>(&self, transport: Transport, result: &anyhow::Result<T>, name: impl FnOnce(&T) -> &'static str) {
        let decision = match result {
            Ok(decision) => name(decision),
            Err(error) if error.is::<Busy>() => "limited",
            Err(_) => "unavailable",
        };
        self.metrics.access(transport, decision);
    }

    /// Sends a request to the control plane within the limits of the client.
    async fn ask<T>(&self, address: IpAddr, request: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let _permit = self.accesses.admit(address).await?;
        request.await.inspect_err(|error| {
            if !error.is::<Busy>() {
                tracing::error!(error = format!("{error:#}"), "cannot authorize a git client");
            }
        })
    }

    /// Starts git for an allowed access of the client at this address. Waits for a permit.
    ///
    /// # Errors
    /// Returns an error for the client if [`is_refusal`]. Other errors only belong in the log.
    pub async fn start(&self, grant: &GitGrant, address: IpAddr, mode: Mode<'_>) -> anyhow::Result<Exchange> {
        let client = grant.user.clone().map_or(Client::Address(address), Client::User);
        let permit = self.programs.acquire(client).await?;
        let Mode { program, arguments, protocol } = mode;
        let reason = if program.writes() { Use::Change } else { Use::Read };
        let repository = self.repositories.open_or_create(&grant.repository, &grant.default_branch, reason).await?;
        let push = match program.writes() {
            true => Some(self.begin_push(grant, &repository, permit.node())?),
            false => None,
        };
        let hooks = push.as_ref().map(|push| push.guard.hooks());
        // A push can refer to objects of the repository, which git then copies into the new pack.
        let max_file = grant.max_push_bytes.map(|max| max.max(MIN_FILE_BYTES));
        match self.repositories.git().serve(program, arguments, &repository.path, protocol, hooks, max_file) {
            Ok(process) => Ok(Exchange { process, repository, max_input: self.max_input, push, permit: Some(permit) }),
            Err(error) => {
                if let Some(push) = push {
                    // The error is in the log.
                    let _ = push.guard.finish(false).await;
                }
                Err(error)
            }
        }
    }

    /// Checks the storage of a push, and registers the push in the journal.
    fn begin_push(&self, grant: &GitGrant, repository: &Repository, permit: NodePermit) -> anyhow::Result<Push> {
        let max_bytes = grant.max_push_bytes.context("the control plane sent no limit of the push")?;
        let storage = PushStorage::begin(self.repositories.clone(), self.min_free_bytes, max_bytes)?;
        let guard = self.journal.begin(&repository.path, grant, permit)?;
        Ok(Push { guard, storage, repository: grant.repository.clone(), sizes: self.sizes.clone() })
    }
}

/// Returns whether an error is the reason for the client why the node refuses an access.
pub fn is_refusal(error: &anyhow::Error) -> bool {
    error.is::<Busy>() || error.is::<StorageRefusal>()
}

impl Exchange {
    /// Copies the input to git and git's output to the client, until git ends or the client disconnects. When this
    /// function returns, no process of the exchange is running. Returns the exit code of git.
    ///
    /// `skips_input` states whether to read the input to its end after git has ended. HTTP requires this, because a
    /// client reads the response only after it has sent its whole request.
    pub async fn run<I, E>(mut self, input: I, output: mpsc::Sender<Output>, skips_input: bool) -> anyhow::Result<u8>
    where
        I: Stream<Item = Result<Bytes, E>>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let progress = Progress::new(Instant::now());
        let result = tokio::select! {
            result = self.communicate(input, &output, skips_input, &progress) => result,
            () = progress.wait_until_stalled() => Err(anyhow::anyhow!("the client sent or received data too slowly")),
            () = output.closed() => Err(anyhow::anyhow!("the client disconnected")),
            () = sleep(TIMEOUT) => Err(anyhow::anyhow!("the exchange took longer than {} minutes", TIMEOUT.as_secs() / 60)),
        };
        let mut result = match result {
            Ok(()) => self.process.wait().await,
            Err(error) => Err(error),
        };
        self.process.end().await;
        if let Some(Push { guard, storage, repository, sizes }) = self.push.take() {
            if let Err(error) = guard.finish(matches!(result, Ok(0))).await {
                // git has already reported success to the client. The client may have disconnected.
                let _ = output.send(Output::Abort).await;
                result = Err(error);
            }
            let was_killed = self.process.was_killed();
            if was_killed || storage.has_input() {
                sizes.report_change(repository, self.repository, was_killed);
            }
        }
        result
    }

    async fn communicate<I, E>(
        &mut self,
        input: I,
        output: &mpsc::Sender<Output>,
        skips_input: bool,
        progress: &Progress,
    ) -> anyhow::Result<()>
    where
        I: Stream<Item = Result<Bytes, E>>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let max_input = if self.push.is_some() { self.max_input } else { MAX_REQUEST_BYTES };
        let (guard, storage) = self.push.as_mut().map(|push| (&push.guard, &mut push.storage)).unzip();
        let checks = guard.zip(storage);
        let feeder = Feeder {
            checks: checks.map(|(push, storage)| PushChecks { push, storage, commands: CommandReader::default() }),
            stdin: self.process.stdin.take(),
            total: 0,
            max_input,
            skips_input,
            refusal: None,
        };
        let feed = async {
            // Owned by this block, so that git's input is closed after the last chunk.
            let mut feeder = feeder;
            let mut input = std::pin::pin!(input);
            while let Some(chunk) = input.next().await {
                let chunk = chunk?;
                progress.count(chunk.len(), Instant::now());
                feeder.feed(&chunk, output).await?;
                progress.restart(Instant::now());
            }
            feeder.refusal.map_or(Ok(()), Err)
        };
        let stdout = self.process.stdout.take().context("git has an output")?;
        let drain = forward_output(stdout, self.process.stderr.take(), output, progress);
        let mut feed = std::pin::pin!(feed);
        let mut drain = std::pin::pin!(drain);
        let mut is_fed = false;
        loop {
            tokio::select! {
                fed = &mut feed, if !is_fed => {
                    fed?;
                    is_fed = true;
                }
                drained = &mut drain => {
                    drained?;
                    break;
                }
            }
        }
        if let Some(reason) = guard.and_then(PushGuard::refusal) {
            // git has ended without a report, because its hook failed. The client may have disconnected.
            let _ = output.send(Output::Refusal(reason)).await;
        }
        if skips_input && !is_fed {
            // No process needs the rest of the input, so the permit is released. The hooks have reported their updates.
            drop(self.permit.take());
            if let Some(push) = guard {
                push.deliver();
            }
            timeout(SKIP_TIMEOUT, feed).await.context("the client sends its input too slowly")??;
        }
        Ok(())
    }
}

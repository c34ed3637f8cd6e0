//! Serves the requests of the hooks, and sends the result of a deploy to the client of a push.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use protocol::{GitDeployState, GitDeployed, GitPushDecision, GitPusher, GitUpdate};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use super::{Journal, Push};
use crate::core::Core;
use crate::deploy::Deployer;
use crate::hook::{OK, Phase, REFUSED, Step};
use crate::leftovers::remove_file;
use crate::metrics::Metrics;
use crate::sync::FailedPacks;

/// The maximum size of a hook's message, in bytes. 2,000 updates of refs with long names fit.
const MAX_STEP_BYTES: u64 = 16 << 20;
/// The maximum time for which a client waits for the deploy of its push.
const MAX_DEPLOY_WAIT: Duration = Duration::from_secs(300);
/// The time for which a decision about a transaction of a push applies to its further transactions. A client cannot hold
/// these up.
const DECISION_VALIDITY: Duration = Duration::from_secs(1);
/// The reason for the client if the control plane does not respond while refs are locked.
const UNAVAILABLE: &str = "push refused: the service is not available; push again in a moment";

/// The node refuses a transaction. Contains the reason for the client.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct PushRefusal(String);

impl Journal {
    /// Serves the hooks. Fails only if it cannot listen.
    pub async fn serve_hooks(
        self,
        socket: PathBuf,
        core: Core,
        deployer: Deployer,
        metrics: Metrics,
    ) -> anyhow::Result<()> {
        remove_file(&socket)?;
        let listener = UnixListener::bind(&socket).context("cannot listen on the socket of the hooks")?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection of a hook");
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (journal, core, deployer, metrics) = (self.clone(), core.clone(), deployer.clone(), metrics.clone());
            tokio::spawn(async move {
                if let Err(error) = journal.answer(stream, &core, &deployer, &metrics).await {
                    tracing::error!(%error, "failed to answer a hook");
                }
            });
        }
    }

    async fn answer(
        &self,
        mut stream: UnixStream,
        core: &Core,
        deployer: &Deployer,
        metrics: &Metrics,
    ) -> anyhow::Result<()> {
        let mut step = Vec::new();
        (&mut stream).take(MAX_STEP_BYTES).read_to_end(&mut step).await?;
        let step: Step = serde_json::from_slice(&step)?;
        if step.phase == Phase::Finished {
            if let Some(text) = self.deploy(&step, deployer).await {
                stream.write_all(text.as_bytes()).await?;
            }
            return Ok(());
        }
        let push = step.push.clone();
        let phase = step.phase;
        let response = match self.accept(step, core, metrics).await {
            Ok(()) => OK,
            Err(error) => {
                self.note_refusal(&push, phase, &error);
                REFUSED
            }
        };
        stream.write_all(response.as_bytes()).await?;
        Ok(())
    }

    /// Records a step of a transaction. Before git changes refs, checks that the push is still allowed. This is the last
    /// check, because the sync of a large push takes long.
    async fn accept(&self, step: Step, core: &Core, metrics: &Metrics) -> anyhow::Result<()> {
        let (journal, push, phase) = (self.clone(), step.push.clone(), step.phase);
        spawn_blocking(move || journal.record(step)).await??;
        match phase {
            Phase::Prepared => self.authorize_again(&push, core, metrics).await,
            Phase::Committed | Phase::Aborted | Phase::Finished => Ok(()),
        }
    }

    /// Asks the control plane whether a push may still change its repository. The pusher may have lost the credential
    /// or the role since the push began.
    async fn authorize_again(&self, id: &str, core: &Core, metrics: &Metrics) -> anyhow::Result<()> {
        let push = self.push(id)?;
        if push.progress().authorized_at.is_some_and(|at| at.elapsed() < DECISION_VALIDITY) {
            return Ok(());
        }
        let Push { repository, pusher, credential, .. } = &push;
        let (user, credential) = pusher.clone().zip(credential.clone()).ok_or_else(|| {
            PushRefusal("push refused: the control plane did not state its user and credential".to_owned())
        })?;
        let asked_at = Instant::now();
        let decision = core.authorize_again(repository, &GitPusher { user: user.clone(), credential }).await;
        metrics.push_decision(match &decision {
            Ok(GitPushDecision::Allowed) => "allowed",
            Ok(GitPushDecision::Refused(_)) => "refused",
            Err(_) => "unavailable",
        });
        match decision {
            Ok(GitPushDecision::Allowed) => {
                push.progress().authorized_at = Some(asked_at);
                Ok(())
            }
            Ok(GitPushDecision::Refused(reason)) => {
                tracing::info!(repository, user, reason, "refused a push in progress");
                Err(PushRefusal(format!("push refused: {reason}")).into())
            }
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), repository, "cannot authorize a push again");
                Err(PushRefusal(UNAVAILABLE.to_owned()).into())
            }
        }
    }

    /// Stores the reason why the node refuses a transaction of a push. The client receives it after git's output, because
    /// git then ends without a report. The failure of another step is only logged.
    fn note_refusal(&self, id: &str, phase: Phase, error: &anyhow::Error) {
        let reason = if let Some(PushRefusal(reason)) = error.downcast_ref() {
            reason.clone()
        } else {
            tracing::error!(error = format!("{error:#}"), "failed to record a transaction");
            let failure = error.downcast_ref::<FailedPacks>().map(ToString::to_string);
            let failure = failure.unwrap_or_else(|| "its journal cannot be written".to_owned());
            format!("the git node cannot record the push: {failure}")
        };
        if phase == Phase::Prepared
            && let Ok(push) = self.push(id)
        {
            push.progress().refusal = Some(reason);
        }
    }

    /// Sends the number of an update to its push, which waits for the deploy of this update.
    pub(super) fn note_number(&self, push: &str, update: &GitUpdate) {
        let deploy = self.pushes().get(push).and_then(|push| push.deploy.clone());
        if let Some(deploy) = deploy.filter(|deploy| deploy.name == update.name) {
            deploy.number.send_replace(Some(update.number));
        }
    }

    /// Waits for the deploy of a push. The deploy continues if the client disconnects. Returns the result for the user;
    /// `None` if the push is not deployed.
    async fn deploy(&self, step: &Step, deployer: &Deployer) -> Option<String> {
        let push = self.push(&step.push).ok()?;
        if push.progress().has_failed {
            // The update has no number yet.
            return None;
        }
        let Push { repository, deploy, permit, .. } = push;
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
}

/// Returns the result of a deploy for the user; `None` if the push is not deployed.
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

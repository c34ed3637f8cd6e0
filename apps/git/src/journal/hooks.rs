//! Serves the requests of the hooks, and sends the result of a deploy to the client of a push.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use protocol::{GitDeployState, GitDeployed, GitUpdate};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::{Journal, Push};
use crate::deploy::Deployer;
use crate::hook::{OK, Phase, Step};
use crate::leftovers::remove_file;
use crate::sync::FailedPacks;

/// The maximum size of a hook's message, in bytes. 2,000 updates of refs with long names fit.
const MAX_STEP_BYTES: u64 = 16 << 20;
/// The maximum time for which a client waits for the deploy of its push.
const MAX_DEPLOY_WAIT: Duration = Duration::from_secs(300);

impl Journal {
    /// Serves the hooks. Fails only if it cannot listen.
    pub async fn serve_hooks(self, socket: PathBuf, deployer: Deployer) -> anyhow::Result<()> {
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
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "failed to record a transaction");
                let refusal = error.downcast_ref::<FailedPacks>().map(ToString::to_string);
                refusal.unwrap_or_else(|| "its journal cannot be written".to_owned())
            }
        };
        stream.write_all(response.as_bytes()).await?;
        Ok(())
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

//! The client of the control plane's internal API.

use std::fs::File;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use protocol::{
    GitAccess, GitAccessRequest, GitDeployState, GitKey, GitKeyUser, GitNextDeploy, GitNodeInfo, GitObjects,
    GitPushDecision, GitPusher, GitReceipt, GitRejection, GitRepositories, GitSize, GitUpdates,
};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};

use crate::config::Config;
use crate::limits::Busy;

const TIMEOUT: Duration = Duration::from_secs(10);
/// The pauses before the decision about an access is requested again. git clients do not repeat their requests.
const RETRY_PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];
/// The maximum time in which a push in progress is authorized again. git holds the locks of the refs during this time.
const PUSH_DECISION_TIMEOUT: Duration = Duration::from_secs(5);
/// The pauses before this decision is requested again. They cover a restart of the control plane.
const PUSH_RETRY_PAUSES: [Duration; 8] = [Duration::from_millis(500); 8];
/// The timeout of a bundle upload.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);
/// The maximum number of characters of a commit message that are uploaded.
const MAX_MESSAGE_CHARACTERS: usize = 200;

/// A client of the control plane. Its errors are for the log and contain no URL.
#[derive(Debug, Clone)]
pub struct Core {
    client: Client,
    base: String,
}

impl Core {
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        let client = daemon::client_builder(config.authorization.clone()).timeout(TIMEOUT).build()?;
        Ok(Self { client, base: config.core_url.clone() })
    }

    /// Asks the control plane whether an access is allowed. The decision is not cached, so a revocation applies to the
    /// next access.
    ///
    /// # Errors
    /// Returns [`Busy`] if the user is above the rate of requests.
    pub async fn authorize(&self, request: &GitAccessRequest) -> anyhow::Result<GitAccess> {
        self.limited(self.client.post(self.url("access")).json(request)).await
    }

    /// Asks the control plane whether a push in progress may still change this repository.
    pub async fn authorize_again(&self, repository: &str, pusher: &GitPusher) -> anyhow::Result<GitPushDecision> {
        let request = self.client.post(self.url(&format!("repositories/{repository}/access"))).json(pusher);
        let decided = async { json(successful(decide(request, &PUSH_RETRY_PAUSES).await?)?).await };
        timeout(PUSH_DECISION_TIMEOUT, decided).await.context("the control plane did not respond")?
    }

    /// Returns the user of an SSH key. `None` if the key is not registered.
    ///
    /// # Errors
    /// Returns [`Busy`] if the user is above the rate of requests.
    pub async fn user_of_key(&self, fingerprint: String) -> anyhow::Result<Option<String>> {
        let key = GitKey { ssh_key: fingerprint };
        let found: GitKeyUser = self.limited(self.client.post(self.url("user")).json(&key)).await?;
        Ok(found.user)
    }

    /// Reports updates of refs.
    pub async fn report(&self, updates: &GitUpdates) -> anyhow::Result<GitReceipt> {
        self.json(self.client.post(self.url("updates")).json(updates)).await
    }

    /// Returns a page of the repositories that have pushes to deploy. The page starts after this repository id.
    pub async fn deployable(&self, after: Option<&str>) -> anyhow::Result<Vec<String>> {
        let query = after.map(|after| format!("?after={after}")).unwrap_or_default();
        let deployable: GitRepositories = self.json(self.client.get(self.url(&format!("deploys{query}")))).await?;
        Ok(deployable.repositories)
    }

    /// Returns the next push to deploy in a repository.
    pub async fn next_deploy(&self, repository: &str) -> anyhow::Result<GitNextDeploy> {
        self.json(self.client.post(self.url(&format!("repositories/{repository}/deploys")))).await
    }

    /// Uploads the bundle of a push. `message` is the first line of the commit's message.
    pub async fn upload(
        &self,
        repository: &str,
        number: i64,
        message: &str,
        file: File,
    ) -> anyhow::Result<GitDeployState> {
        let message: String = message.chars().take(MAX_MESSAGE_CHARACTERS).collect();
        let message = utf8_percent_encode(&message, NON_ALPHANUMERIC).to_string();
        let upload = self.client.post(self.url(&format!("repositories/{repository}/deploys/{number}")));
        let upload = upload.header(CONTENT_TYPE, "application/gzip").header("x-svc-git-message", message);
        let upload = upload.timeout(UPLOAD_TIMEOUT).body(tokio::fs::File::from_std(file));
        self.json(upload).await
    }

    /// Reports that a push cannot be packed.
    pub async fn reject_deploy(&self, repository: &str, number: i64, message: String) -> anyhow::Result<()> {
        let url = self.url(&format!("repositories/{repository}/deploys/{number}/rejection"));
        self.send(self.client.put(url).json(&GitRejection { message })).await?;
        Ok(())
    }

    /// Returns the state of the deploy of a push.
    pub async fn deploy_state(&self, repository: &str, number: i64) -> anyhow::Result<GitDeployState> {
        let url = self.url(&format!("repositories/{repository}/deploys/{number}"));
        self.json(self.client.get(url)).await
    }

    /// Announces the internal listener.
    pub async fn announce(&self, info: &GitNodeInfo) -> anyhow::Result<()> {
        self.send(self.client.put(self.url("node")).json(info)).await?;
        Ok(())
    }

    /// Returns the objects of a repository that must stay readable, and its owner.
    pub async fn objects(&self, repository: &str) -> anyhow::Result<GitObjects> {
        self.json(self.client.get(self.url(&format!("repositories/{repository}/objects")))).await
    }

    /// Reports the size of a repository, in bytes. Returns false if the control plane does not have the repository.
    pub async fn report_size(&self, repository: &str, size_bytes: u64) -> anyhow::Result<bool> {
        let url = self.url(&format!("repositories/{repository}/size"));
        let response = answer(self.client.put(url).json(&GitSize { size_bytes })).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        successful(response)?;
        Ok(true)
    }

    /// Returns deleted repositories whose contents must be erased.
    pub async fn erasable(&self) -> anyhow::Result<Vec<String>> {
        let erasable: GitRepositories = self.json(self.client.get(self.url("erasures"))).await?;
        Ok(erasable.repositories)
    }

    /// Reports repositories that were erased.
    pub async fn erased(&self, repositories: Vec<String>) -> anyhow::Result<()> {
        self.send(self.client.post(self.url("erasures")).json(&GitRepositories { repositories })).await?;
        Ok(())
    }

    fn url(&self, path: &str) -> String {
        format!("{}/internal/v1/git/{path}", self.base)
    }

    /// Sends a request that the control plane counts by user.
    async fn limited<T: DeserializeOwned>(&self, request: RequestBuilder) -> anyhow::Result<T> {
        let response = decide(request, &RETRY_PAUSES).await?;
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            return Err(Busy::Rate.into());
        }
        json(successful(response)?).await
    }

    async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> anyhow::Result<T> {
        json(self.send(request).await?).await
    }

    async fn send(&self, request: RequestBuilder) -> anyhow::Result<Response> {
        successful(answer(request).await?)
    }
}

/// Requests a decision. Repeats the request after each of these pauses if the connection fails or the control plane
/// returns 503.
async fn decide(request: RequestBuilder, pauses: &[Duration]) -> anyhow::Result<Response> {
    for pause in pauses {
        let attempt = request.try_clone().context("the body cannot be sent again")?.send().await;
        let is_transient = match &attempt {
            Ok(response) => response.status() == StatusCode::SERVICE_UNAVAILABLE,
            Err(error) => (error.is_connect() || error.is_request()) && !error.is_timeout(),
        };
        if !is_transient {
            return received(attempt);
        }
        sleep(*pause).await;
    }
    answer(request).await
}

async fn answer(request: RequestBuilder) -> anyhow::Result<Response> {
    received(request.send().await)
}

fn received(response: reqwest::Result<Response>) -> anyhow::Result<Response> {
    response.map_err(reqwest::Error::without_url).context("the control plane did not respond")
}

fn successful(response: Response) -> anyhow::Result<Response> {
    ensure!(response.status().is_success(), "the control plane returned {}", response.status());
    Ok(response)
}

async fn json<T: DeserializeOwned>(response: Response) -> anyhow::Result<T> {
    Ok(response.json().await.map_err(reqwest::Error::without_url)?)
}

#[cfg(test)]
mod tests {
    use settings::Settings;

    use super::*;
    use crate::config::{CLAIM, TABLE};

    impl Core {
        /// Returns a client of a control plane with this address.
        pub fn at(address: &str) -> Self {
            daemon::install_crypto_provider();
            let url = format!("http://{address}");
            let settings = [("SVC_GIT_TOKEN", "svc_nod_x"), ("SVC_GIT_DIR", "/d"), ("SVC_GIT_CORE_URL", url.as_str())];
            let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
            Self::new(&Config::new(&Settings::read(TABLE, &CLAIM, settings).unwrap()).unwrap()).unwrap()
        }

        /// Returns a client of an address at which no server listens.
        pub fn unreachable() -> Self {
            Self::at("127.0.0.1:1")
        }
    }
}

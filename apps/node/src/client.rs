//! The control plane's internal listener, as a node sees it.

use std::time::Duration;

use anyhow::ensure;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};

use crate::config::Config;
use crate::desired::Answer;
use crate::digest::Digest;

/// How long the control plane may keep a question that has no answer yet.
const WAIT: Duration = Duration::from_secs(25);
/// How long it may be silent beyond that, in the middle of a bundle too.
const SILENCE: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(3);

/// The shape of the answers that this release reads. The one before said nothing of whom to let in.
const SCHEMA: u32 = 2;

/// A client of the control plane. Its errors name no address, and are for the log.
#[derive(Clone)]
pub struct Core {
    client: Client,
    base: String,
}

impl Core {
    /// The credential goes to the configured address alone: no redirect and no proxy takes it elsewhere.
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, config.authorization.clone())]);
        let client = Client::builder()
            .default_headers(headers)
            .redirect(Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT)
            .read_timeout(WAIT + SILENCE)
            .build()?;
        Ok(Self { client, base: config.core_url.clone() })
    }

    /// What changed after the revision `since`, or everything for 0. Without a change it takes [`WAIT`].
    pub async fn desired(&self, since: u64) -> anyhow::Result<Answer> {
        let wait = WAIT.as_secs();
        let response = self.get(&format!("/internal/v1/desired?since={since}&wait={wait}")).await?;
        let answer: Answer = response.json().await.map_err(reqwest::Error::without_url)?;
        ensure!(answer.schema == SCHEMA, "the desired state is of schema {}, not {SCHEMA}", answer.schema);
        Ok(answer)
    }

    /// A bundle, unverified.
    pub async fn bundle(&self, bundle: Digest) -> anyhow::Result<Response> {
        self.get(&format!("/internal/v1/bundles/{bundle}")).await
    }

    async fn get(&self, path: &str) -> anyhow::Result<Response> {
        let response = self.client.get(format!("{}{path}", self.base)).send().await;
        let response = response.map_err(reqwest::Error::without_url)?;
        ensure!(response.status().as_u16() == 200, "the control plane answered {}", response.status());
        Ok(response)
    }
}

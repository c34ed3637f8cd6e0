//! The control plane's internal listener, as a node sees it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use protocol::{Batch, Desired, Digest, Receipt, Redeem, Redeemed, SCHEMA};
use reqwest::header::{AUTHORIZATION, HeaderMap};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use serde::Serialize;

use crate::config::Config;
use crate::desired::Answer;

/// How long the control plane may keep a question that has no answer yet.
const WAIT: Duration = Duration::from_secs(25);
/// How long it may be silent beyond that, in the middle of a bundle too.
const SILENCE: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(3);

/// The outcome of a batch of reports.
pub enum Reported {
    /// The control plane answered.
    Received(Receipt),
    /// The control plane will not accept it, however often it is sent.
    Refused,
}

/// What became of a code.
pub enum Redemption {
    /// It lets its visitor in to this project.
    Of(String),
    /// It lets nobody in: it is none, or is of another host, was used before, or is too old.
    Refused,
}

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
    pub async fn desired(&self, since: i64) -> anyhow::Result<Answer> {
        let wait = WAIT.as_secs();
        let response = self.get(&format!("/internal/v1/desired?since={since}&wait={wait}")).await?;
        let desired: Desired = response.json().await.map_err(reqwest::Error::without_url)?;
        ensure!(desired.schema == SCHEMA, "the desired state is of schema {}, not {SCHEMA}", desired.schema);
        Answer::read(desired).context("a part of the desired state is malformed")
    }

    /// A bundle, unverified.
    pub async fn bundle(&self, bundle: Digest) -> anyhow::Result<Response> {
        self.get(&format!("/internal/v1/bundles/{bundle}")).await
    }

    /// Sends a batch of reports.
    pub async fn report(&self, batch: &Batch) -> anyhow::Result<Reported> {
        let response = self.post("/internal/v1/reports", batch).await?;
        if matches!(response.status().as_u16(), 400 | 413 | 422) {
            return Ok(Reported::Refused);
        }
        let receipt = succeeded(response)?.json().await.map_err(reqwest::Error::without_url)?;
        Ok(Reported::Received(receipt))
    }

    /// Redeems a code of the access round trip at the host that a visitor brought it to.
    pub async fn redeem(&self, host: &str, code: &str) -> anyhow::Result<Redemption> {
        let redeem = Redeem { host: host.to_owned(), code: code.to_owned() };
        let response = self.post("/internal/v1/access/redeem", &redeem).await?;
        if matches!(response.status().as_u16(), 400 | 404) {
            return Ok(Redemption::Refused);
        }
        let Redeemed { project, .. } = succeeded(response)?.json().await.map_err(reqwest::Error::without_url)?;
        Ok(Redemption::Of(project))
    }

    async fn get(&self, path: &str) -> anyhow::Result<Response> {
        let response = self.client.get(format!("{}{path}", self.base)).send().await;
        succeeded(response.map_err(reqwest::Error::without_url)?)
    }

    async fn post(&self, path: &str, body: &impl Serialize) -> anyhow::Result<Response> {
        let request = self.client.post(format!("{}{path}", self.base)).timeout(SILENCE).json(body);
        Ok(request.send().await.map_err(reqwest::Error::without_url)?)
    }
}

fn succeeded(response: Response) -> anyhow::Result<Response> {
    ensure!(response.status().as_u16() == 200, "the control plane answered {}", response.status());
    Ok(response)
}

//! The control plane's internal listener, as a node sees it.

use std::time::Duration;

use anyhow::ensure;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use serde::Deserialize;
use serde_json::json;

use crate::config::Config;
use crate::desired::Answer;
use crate::digest::Digest;
use crate::observe::Observation;

/// How long the control plane may keep a question that has no answer yet.
const WAIT: Duration = Duration::from_secs(25);
/// How long it may be silent beyond that, in the middle of a bundle too.
const SILENCE: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(3);

/// The shape of the answers that this release reads. The one before said nothing of whom to let in.
const SCHEMA: u32 = 2;

/// What became of a batch of reports.
pub enum Receipt {
    /// The number of the last batch that was taken in.
    Taken(u64),
    /// It will not be taken, however often it is sent.
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

    /// Reports what was seen.
    pub async fn report(&self, batch: u64, observations: &[Observation]) -> anyhow::Result<Receipt> {
        #[derive(Deserialize)]
        struct Taken {
            batch: u64,
        }
        let body = json!({ "batch": batch, "deployments": observations });
        let response = self.post("/internal/v1/reports", &body).await?;
        if matches!(response.status().as_u16(), 400 | 413 | 422) {
            return Ok(Receipt::Refused);
        }
        let Taken { batch } = succeeded(response)?.json().await.map_err(reqwest::Error::without_url)?;
        Ok(Receipt::Taken(batch))
    }

    /// Redeems a code of the access round trip at the host that a visitor brought it to.
    pub async fn redeem(&self, host: &str, code: &str) -> anyhow::Result<Redemption> {
        #[derive(Deserialize)]
        struct Redeemed {
            project: String,
        }
        let body = json!({ "host": host, "code": code });
        let response = self.post("/internal/v1/access/redeem", &body).await?;
        if matches!(response.status().as_u16(), 400 | 404) {
            return Ok(Redemption::Refused);
        }
        let Redeemed { project } = succeeded(response)?.json().await.map_err(reqwest::Error::without_url)?;
        Ok(Redemption::Of(project))
    }

    async fn get(&self, path: &str) -> anyhow::Result<Response> {
        let response = self.client.get(format!("{}{path}", self.base)).send().await;
        succeeded(response.map_err(reqwest::Error::without_url)?)
    }

    async fn post(&self, path: &str, body: &serde_json::Value) -> anyhow::Result<Response> {
        let request = self.client.post(format!("{}{path}", self.base)).timeout(SILENCE).json(body);
        Ok(request.send().await.map_err(reqwest::Error::without_url)?)
    }
}

fn succeeded(response: Response) -> anyhow::Result<Response> {
    ensure!(response.status().as_u16() == 200, "the control plane answered {}", response.status());
    Ok(response)
}

//! The client of the control plane's internal API.

use std::time::Duration;

use actix_web::http::header::HttpDate;
use anyhow::{bail, ensure};
use bytes::Bytes;
use protocol::{
    AiAdmission, AiCallRequest, AiSettlements, Batch, Certificate, ChallengeResponse, Desired, Digest, MailClaim,
    MailDelivered, MailDeliveries, MailSubmitted, NodeInfo, Receipt, RedeemRequest, RedeemResult, SCHEMA,
};
use reqwest::header::{CONTENT_TYPE, DATE};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::clock::ReferenceClock;
use crate::config::Config;
use crate::desired::DesiredUpdate;

/// The wait that a long poll requests.
const POLL_WAIT: Duration = Duration::from_secs(25);
/// The read timeout. For long polls and downloads, [`POLL_WAIT`] is added to it.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The control plane rejected the credential of the node.
#[derive(Debug, thiserror::Error)]
#[error("the control plane rejected the credential of this node (401)")]
pub struct Unauthorized;

/// The result of a request that changes the state of the control plane.
pub enum Outcome<T> {
    /// The control plane accepted this request, or an earlier attempt of it.
    Accepted(T),
    /// A permanent error: retries do not help.
    Rejected,
}

/// The result of redeeming an access code.
pub enum Redemption {
    /// The code grants access to this project.
    Granted(String),
    /// The code is unknown, used, expired or for another host.
    Rejected,
}

/// A client of the control plane. Its errors are for the log and contain no URL.
#[derive(Clone)]
pub struct Core {
    client: Client,
    /// The time of the responses.
    clock: ReferenceClock,
    base: String,
}

impl Core {
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        let client =
            daemon::client_builder(config.authorization.clone()).read_timeout(POLL_WAIT + READ_TIMEOUT).build()?;
        Ok(Self { client, clock: ReferenceClock::default(), base: config.core_url.clone() })
    }

    /// Returns a client of an address at which no server listens.
    #[cfg(test)]
    pub fn unreachable() -> Self {
        use crate::config::{CLAIM, TABLE};

        // This fails if another test has installed the provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = format!("http://{}", testkit::reserved_address());
        let given = [("SVC_NODE_TOKEN", "svc_nod_x"), ("SVC_NODE_DIR", "/d"), ("SVC_NODE_CORE_URL", &url)];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings = settings::Settings::read(TABLE, &CLAIM, given).unwrap();
        Self::new(&Config::new(&settings).unwrap()).unwrap()
    }

    /// Returns the time of the control plane.
    pub fn clock(&self) -> ReferenceClock {
        self.clock.clone()
    }

    /// Long-polls the changes after the revision `since`, or fetches the full state if `since` is 0. Returns all pages
    /// together. If nothing changes within [`POLL_WAIT`], returns an empty response.
    pub async fn desired(&self, since: i64) -> anyhow::Result<DesiredUpdate> {
        let first = self.desired_page(since).await?;
        let mut has_more = first.has_more;
        let mut update = DesiredUpdate::read(first);
        while has_more {
            let page = self.desired_page(update.revision).await?;
            ensure!(update.accepts_page(&page), "the revision did not increase between two pages");
            has_more = page.has_more;
            update.add_page(page);
        }
        Ok(update)
    }

    async fn desired_page(&self, since: i64) -> anyhow::Result<Desired> {
        let wait = POLL_WAIT.as_secs();
        let response = self.get(&format!("/internal/v1/desired?since={since}&wait={wait}")).await?;
        let date = response.headers().get(DATE).and_then(|date| date.to_str().ok()?.parse::<HttpDate>().ok());
        if let Some(date) = date {
            self.clock.observe(date.into());
        }
        let desired: Desired = json(response).await?;
        ensure!(desired.schema == SCHEMA, "the desired state has schema {}, expected {SCHEMA}", desired.schema);
        Ok(desired)
    }

    /// Downloads a bundle, unverified.
    pub async fn bundle(&self, bundle: Digest) -> anyhow::Result<Response> {
        self.get(&format!("/internal/v1/bundles/{bundle}")).await
    }

    /// Fetches a certificate with its private key. Returns `None` if the control plane has replaced it.
    pub async fn certificate(&self, id: &str) -> anyhow::Result<Option<Certificate>> {
        let request = self.client.get(format!("{}/internal/v1/certificates/{id}", self.base)).timeout(READ_TIMEOUT);
        found(send(request).await?).await
    }

    /// Returns the response to an HTTP-01 challenge at a host. Returns `None` if no certification authority was asked to
    /// verify it. The token must consist of characters that a path segment may contain.
    pub async fn challenge(
        &self,
        token: &str,
        host: &str,
        timeout: Duration,
    ) -> anyhow::Result<Option<ChallengeResponse>> {
        let query = serde_urlencoded::to_string([("host", host)])?;
        let url = format!("{}/internal/v1/acme-challenges/{token}?{query}", self.base);
        let request = self.client.get(url).timeout(timeout);
        found(send(request).await?).await
    }

    /// Sends a batch of reports.
    pub async fn report(&self, batch: &Batch) -> anyhow::Result<Outcome<Receipt>> {
        let response = self.post("/internal/v1/reports", batch).await?;
        accepted(response).await
    }

    /// Announces what the node offers.
    pub async fn announce(&self, info: &NodeInfo) -> anyhow::Result<()> {
        let request = self.client.put(format!("{}/internal/v1/node", self.base)).timeout(READ_TIMEOUT).json(info);
        let response = send(request).await?;
        ensure!(response.status().is_success(), "the control plane returned {}", response.status());
        Ok(())
    }

    /// Redeems an access code at the host that the visitor was redirected to.
    pub async fn redeem(&self, host: &str, code: &str) -> anyhow::Result<Redemption> {
        let redeem = RedeemRequest { host: host.to_owned(), code: code.to_owned() };
        let response = self.post("/internal/v1/access/redeem", &redeem).await?;
        if matches!(response.status().as_u16(), 400 | 404) {
            return Ok(Redemption::Rejected);
        }
        let RedeemResult { project, .. } = json(require_ok(response)?).await?;
        Ok(Redemption::Granted(project))
    }

    /// Returns the catalog of AI models.
    pub async fn ai_models(&self) -> anyhow::Result<Value> {
        let request = self.client.get(format!("{}/internal/v1/ai/models", self.base)).timeout(READ_TIMEOUT);
        json(require_ok(send(request).await?)?).await
    }

    /// Requests the admission of an AI call. If this fails, the control plane may still have admitted the call.
    pub async fn admit_ai_call(&self, call: &AiCallRequest) -> anyhow::Result<AiAdmission> {
        json(require_ok(self.post("/internal/v1/ai/calls", call).await?)?).await
    }

    /// Reports AI calls that ended or are in progress.
    pub async fn settle_ai_calls(&self, calls: &AiSettlements) -> anyhow::Result<Outcome<()>> {
        let response = self.post("/internal/v1/ai/settlements", calls).await?;
        confirmed(&response)
    }

    /// Submits a [`protocol::MailSubmission`] in JSON. If this fails, the control plane may still have queued the mail.
    pub async fn submit_mail(&self, submission: Bytes) -> anyhow::Result<Outcome<MailSubmitted>> {
        let request = self.client.post(format!("{}/internal/v1/mail/submissions", self.base)).timeout(READ_TIMEOUT);
        let request = request.header(CONTENT_TYPE, "application/json").body(submission);
        accepted(send(request).await?).await
    }

    /// Long-polls the received mail that is due, and claims it. If none is due within [`POLL_WAIT`], returns nothing. Ends
    /// the claims of mails that are not in progress.
    pub async fn claim_mail(&self, claim: &MailClaim) -> anyhow::Result<MailDeliveries> {
        let wait = POLL_WAIT.as_secs();
        let url = format!("{}/internal/v1/mail/deliveries?wait={wait}", self.base);
        json(require_ok(send(self.client.post(url).json(claim)).await?)?).await
    }

    /// Downloads a mail that this node has claimed.
    pub async fn mail(&self, id: &str) -> anyhow::Result<Response> {
        self.get(&format!("/internal/v1/mail/messages/{id}/raw")).await
    }

    /// Reports how a worker handled a mail.
    pub async fn report_mail(&self, id: &str, delivered: &MailDelivered) -> anyhow::Result<Outcome<()>> {
        let response = self.post(&format!("/internal/v1/mail/deliveries/{id}"), delivered).await?;
        match response.status().as_u16() {
            // The project was deleted, or the mail is no longer in the log.
            404 => Ok(Outcome::Rejected),
            _ => confirmed(&response),
        }
    }

    async fn get(&self, path: &str) -> anyhow::Result<Response> {
        require_ok(send(self.client.get(format!("{}{path}", self.base))).await?)
    }

    async fn post(&self, path: &str, body: &impl Serialize) -> anyhow::Result<Response> {
        send(self.client.post(format!("{}{path}", self.base)).timeout(READ_TIMEOUT).json(body)).await
    }
}

async fn send(request: RequestBuilder) -> anyhow::Result<Response> {
    Ok(request.send().await.map_err(reqwest::Error::without_url)?)
}

async fn json<T: DeserializeOwned>(response: Response) -> anyhow::Result<T> {
    Ok(response.json().await.map_err(reqwest::Error::without_url)?)
}

/// Returns whether a response rejects the content of a request permanently.
fn is_rejection(response: &Response) -> bool {
    matches!(response.status().as_u16(), 400 | 413 | 422)
}

/// Returns the result of a request whose response has no content.
fn confirmed(response: &Response) -> anyhow::Result<Outcome<()>> {
    match response.status().as_u16() {
        _ if is_rejection(response) => Ok(Outcome::Rejected),
        204 => Ok(Outcome::Accepted(())),
        status => bail!("the control plane returned {status}"),
    }
}

/// Returns the result of a request whose response has a content.
async fn accepted<T: DeserializeOwned>(response: Response) -> anyhow::Result<Outcome<T>> {
    if is_rejection(&response) {
        return Ok(Outcome::Rejected);
    }
    Ok(Outcome::Accepted(json(require_ok(response)?).await?))
}

/// Returns the content of a response, or `None` if the object does not exist.
async fn found<T: DeserializeOwned>(response: Response) -> anyhow::Result<Option<T>> {
    if response.status() == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    Ok(Some(json(require_ok(response)?).await?))
}

fn require_ok(response: Response) -> anyhow::Result<Response> {
    if response.status() == StatusCode::UNAUTHORIZED {
        return Err(Unauthorized.into());
    }
    ensure!(response.status().as_u16() == 200, "the control plane returned {}", response.status());
    Ok(response)
}

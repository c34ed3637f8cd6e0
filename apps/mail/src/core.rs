//! The client of the control plane's internal API.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use protocol::{InboundMail, Recipient, RecipientRequest};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Body, Client, RequestBuilder, Response, StatusCode};

use crate::config::Config;
use crate::host::HostName;

const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest upload of a mail.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(120);

/// A client of the control plane. Its errors are for the log and contain no URL.
#[derive(Debug, Clone)]
pub struct Core {
    client: Client,
    base: String,
}

/// The result of handing over a mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handover {
    Received,
    /// The project is gone.
    NoProject,
}

impl Core {
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        let client = daemon::client_builder(config.authorization.clone()).timeout(TIMEOUT).build()?;
        Ok(Self { client, base: format!("{}/internal/v1/mail", config.core_url) })
    }

    /// Returns the project of the addresses at a domain.
    pub async fn recipient(&self, domain: &HostName) -> anyhow::Result<Recipient> {
        let request = RecipientRequest { domain: domain.to_string() };
        let response = send(self.client.post(format!("{}/recipients", self.base)).json(&request)).await?;
        require_success(response.status())?;
        Ok(response.json().await.map_err(reqwest::Error::without_url)?)
    }

    /// Uploads the bytes of a mail.
    pub async fn upload(&self, id: &str, length: u64, bytes: Body) -> anyhow::Result<()> {
        let request = self.client.put(format!("{}/inbound/{id}/raw", self.base));
        let request = request.header(CONTENT_TYPE, "message/rfc822").header(CONTENT_LENGTH, length);
        require_success(send(request.timeout(UPLOAD_TIMEOUT).body(bytes)).await?.status())
    }

    /// Hands over a mail whose bytes were uploaded.
    pub async fn hand_over(&self, id: &str, mail: &InboundMail) -> anyhow::Result<Handover> {
        let request = self.client.put(format!("{}/inbound/{id}", self.base)).json(mail);
        let status = send(request).await?.status();
        if status == StatusCode::NOT_FOUND {
            return Ok(Handover::NoProject);
        }
        require_success(status)?;
        Ok(Handover::Received)
    }
}

async fn send(request: RequestBuilder) -> anyhow::Result<Response> {
    let response = request.send().await.map_err(reqwest::Error::without_url);
    response.context("the control plane did not respond")
}

fn require_success(status: StatusCode) -> anyhow::Result<()> {
    ensure!(status.is_success(), "the control plane returned {status}");
    Ok(())
}

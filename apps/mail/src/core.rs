//! The client of the control plane's internal API.

use std::error::Error as _;
use std::iter::successors;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use protocol::{InboundMail, Recipient, RecipientRequest};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Body, Client, RequestBuilder, Response, StatusCode};

use crate::config::Config;
use crate::host::HostName;
use crate::queue::ReadError;

const TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of a mail upload.
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
    /// The project does not exist any more.
    NoProject,
    /// The control plane considers the mail invalid.
    Refused,
}

impl Handover {
    /// Returns the outcome in the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::NoProject => "no_project",
            Self::Refused => "refused",
        }
    }
}

/// A failed hand-over. The sources contain no URL.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    #[error("the control plane did not respond")]
    NoResponse(#[source] reqwest::Error),
    /// The control plane rejected the request.
    #[error("the control plane returned {0}")]
    Status(StatusCode),
    #[error("cannot read the mail")]
    Unreadable(#[source] anyhow::Error),
}

impl HandoverError {
    /// Returns whether the control plane did not respond, or responded that it cannot process requests now.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::NoResponse(_) => true,
            Self::Status(status) => status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS,
            Self::Unreadable(_) => false,
        }
    }
}

impl From<reqwest::Error> for HandoverError {
    fn from(error: reqwest::Error) -> Self {
        let is_unreadable = successors(error.source(), |cause| (*cause).source()).any(|cause| cause.is::<ReadError>());
        if is_unreadable { Self::Unreadable(error.into()) } else { Self::NoResponse(error) }
    }
}

impl Core {
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        let client = daemon::client_builder(config.authorization.clone()).timeout(TIMEOUT).build()?;
        Ok(Self { client, base: format!("{}/internal/v1/mail", config.core_url) })
    }

    /// Returns the project that receives the mail for a domain.
    pub async fn recipient(&self, domain: &HostName) -> anyhow::Result<Recipient> {
        let request = RecipientRequest { domain: domain.to_string() };
        let request = self.client.post(format!("{}/recipients", self.base)).json(&request);
        let response = send(request).await.context("the control plane did not respond")?;
        let status = response.status();
        ensure!(status.is_success(), "the control plane returned {status}");
        Ok(response.json().await.map_err(reqwest::Error::without_url)?)
    }

    /// Uploads the bytes of a mail of a project.
    pub async fn upload(&self, project: &str, id: &str, length: u64, bytes: Body) -> Result<(), HandoverError> {
        let request = self.client.put(format!("{}/uploads/{project}/{id}", self.base));
        let request = request.header(CONTENT_TYPE, "message/rfc822").header(CONTENT_LENGTH, length);
        request_handover(request.timeout(UPLOAD_TIMEOUT).body(bytes)).await
    }

    /// Hands over a mail whose bytes are already uploaded.
    pub async fn hand_over(&self, id: &str, mail: &InboundMail) -> Result<Handover, HandoverError> {
        let request = self.client.put(format!("{}/inbound/{id}", self.base)).json(mail);
        match request_handover(request).await {
            Ok(()) => Ok(Handover::Received),
            Err(HandoverError::Status(StatusCode::NOT_FOUND)) => Ok(Handover::NoProject),
            Err(HandoverError::Status(StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE)) => {
                Ok(Handover::Refused)
            }
            Err(error) => Err(error),
        }
    }
}

async fn request_handover(request: RequestBuilder) -> Result<(), HandoverError> {
    let status = send(request).await?.status();
    if status.is_success() { Ok(()) } else { Err(HandoverError::Status(status)) }
}

async fn send(request: RequestBuilder) -> reqwest::Result<Response> {
    request.send().await.map_err(reqwest::Error::without_url)
}

#[cfg(test)]
mod tests {
    use std::io;

    use actix_web::{App, HttpResponse, HttpServer, web};
    use bytes::Bytes;
    use futures_util::stream;

    use super::*;

    /// Sends this body to a server that responds with this status.
    async fn fail(status: u16, body: Body) -> HandoverError {
        let app = move || {
            let status = actix_web::http::StatusCode::from_u16(status).unwrap();
            App::new().default_service(web::to(move |_: web::Bytes| async move { HttpResponse::new(status) }))
        };
        let server = HttpServer::new(app).workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", server.addrs()[0]);
        let server = server.run();
        let handle = server.handle();
        tokio::spawn(server);
        let failed = request_handover(Client::new().put(url).body(body)).await.unwrap_err();
        handle.stop(false).await;
        failed
    }

    #[tokio::test]
    async fn only_outages_count_as_outages() {
        // Another test can have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        for (status, is_outage) in
            [(503, true), (500, true), (429, true), (400, false), (413, false), (409, false), (404, false)]
        {
            let failed = fail(status, "mail".into()).await;
            assert!(matches!(&failed, HandoverError::Status(returned) if returned.as_u16() == status), "{failed:?}");
            assert_eq!(failed.is_outage(), is_outage, "{status}");
        }
        let nowhere = request_handover(Client::new().put("http://127.0.0.1:1/")).await.unwrap_err();
        assert!(matches!(nowhere, HandoverError::NoResponse(_)) && nowhere.is_outage(), "{nowhere:?}");
        let blocks = [Ok(Bytes::from_static(b"mail")), Err(ReadError::from(io::Error::other("a bad block")))];
        let unreadable = fail(204, Body::wrap_stream(stream::iter(blocks))).await;
        assert!(matches!(unreadable, HandoverError::Unreadable(_)) && !unreadable.is_outage(), "{unreadable:?}");
    }
}

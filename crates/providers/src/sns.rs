//! The notification service (Amazon SNS): the certificates that sign its messages, and the confirmation of
//! subscriptions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kernel::Time;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::sync::watch;
use url::Url;
use webhooks::sns::{CertificateHosts, SnsCertificate};

use crate::outbound::{Limits, OutboundClient, OutboundConfigError, OutboundError};

const LIMITS: Limits =
    Limits { connect_timeout: Duration::from_secs(3), timeout: Duration::from_secs(3), max_body_bytes: 16 * 1024 };
/// The number of certificates that are kept. The host of a region has few that are valid, and changes them about once a
/// year, so a client that names other ones cannot displace a certificate.
const MAX_CACHED: usize = 8;
/// The number of concurrent requests for certificates. Any client can cause such a request, with a forged message.
const MAX_IN_FLIGHT: usize = 8;

/// The client of the notification service. Clones share the certificates.
#[derive(Debug, Clone)]
pub struct SnsClient {
    client: OutboundClient,
    certificates: Arc<Mutex<Certificates>>,
}

#[derive(Debug, Default)]
struct Certificates {
    /// The certificates by URL, the oldest first.
    cached: Vec<(Url, Arc<SnsCertificate>)>,
    in_flight: HashMap<Url, Outcome>,
}

type Fetched = Result<Arc<SnsCertificate>, SnsError>;
/// `None` until the request ends.
type Outcome = watch::Receiver<Option<Fetched>>;

/// The reason why a certificate is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnsError {
    /// The request failed.
    #[error("failed to fetch the certificate: {0}")]
    Call(#[from] OutboundError),
    /// The response is not a certificate.
    #[error("the response is not a certificate")]
    NotACertificate,
    /// Too many other certificates are being fetched.
    #[error("too many certificates are being fetched")]
    Busy,
}

impl SnsClient {
    /// Creates a client that calls only these hosts. It trusts the certificate authorities of the system and those in
    /// `ca`, a PEM text.
    ///
    /// # Errors
    /// Returns an error if `ca` contains no certificate, or there is no certificate authority at all.
    pub fn new(hosts: CertificateHosts, ca: Option<&str>) -> Result<Self, OutboundConfigError> {
        let client = OutboundClient::for_notifications("notification service", hosts, ca, LIMITS)?;
        Ok(Self { client, certificates: Arc::default() })
    }

    /// Returns the certificate at this URL, if possible without a request. Concurrent calls share one request.
    ///
    /// # Errors
    /// Returns an error if the certificate cannot be fetched. The error is not cached.
    pub async fn certificate(&self, url: &Url, now: Time) -> Fetched {
        let mut outcome = {
            let mut certificates = self.certificates();
            // A certificate that expired may have been replaced.
            certificates.cached.retain(|(_, certificate)| certificate.is_valid_at(now.unix_seconds()));
            if let Some((_, certificate)) = certificates.cached.iter().find(|(cached, _)| cached == url) {
                return Ok(Arc::clone(certificate));
            }
            match certificates.in_flight.get(url) {
                Some(outcome) => outcome.clone(),
                None if certificates.in_flight.len() >= MAX_IN_FLIGHT => return Err(SnsError::Busy),
                None => self.start(&mut certificates, url),
            }
        };
        let outcome = outcome.wait_for(Option::is_some).await.ok().and_then(|fetched| fetched.clone());
        // The task ends without an outcome only if the runtime shuts down.
        outcome.unwrap_or(Err(SnsError::Busy))
    }

    /// Starts a request in a task, so that it ends even if the caller disconnects.
    fn start(&self, certificates: &mut Certificates, url: &Url) -> Outcome {
        let (sender, outcome) = watch::channel(None);
        certificates.in_flight.insert(url.clone(), outcome.clone());
        let (this, url) = (self.clone(), url.clone());
        tokio::spawn(async move {
            let fetched = this.fetch(&url).await;
            let mut certificates = this.certificates();
            certificates.in_flight.remove(&url);
            if let Ok(certificate) = &fetched {
                if certificates.cached.len() >= MAX_CACHED {
                    certificates.cached.remove(0);
                }
                certificates.cached.push((url, Arc::clone(certificate)));
            }
            drop(certificates);
            sender.send_replace(Some(fetched));
        });
        outcome
    }

    async fn fetch(&self, url: &Url) -> Fetched {
        let pem = self.client.get_bytes(url).await?;
        let der = CertificateDer::from_pem_slice(&pem).map_err(|_| SnsError::NotACertificate)?;
        SnsCertificate::from_der(&der).map(Arc::new).map_err(|_| SnsError::NotACertificate)
    }

    /// Confirms a subscription. A repeated confirmation has no further effect.
    ///
    /// # Errors
    /// Returns an error unless the service responds with a 2xx status.
    pub async fn confirm(&self, url: &Url) -> Result<(), OutboundError> {
        self.client.visit(url).await
    }

    fn certificates(&self) -> MutexGuard<'_, Certificates> {
        // A panic of another thread cannot leave the cache inconsistent, because each change is a single operation.
        self.certificates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! A session of an account at an authority: the calls of an order.

use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, Challenge, ChallengeStatus, ChallengeType,
    Error as LibraryError, Identifier, NewOrder, Order, OrderStatus, Problem,
};
use ring::digest::{SHA256, digest};
use serde::Deserialize;

use super::transport::{Transport, explain, has_type};
use super::{AcmeChallenge, AcmeChallengeType, AcmeError, AcmeOrder, AcmeStatus};

/// A session of an account at an authority.
pub struct AcmeSession {
    account: Account,
    transport: Transport,
    account_url: String,
    caa_identities: Vec<String>,
    /// The order of the last call, with the nonce for the next one.
    order: Mutex<Option<Order>>,
}

/// The parts of an account object (RFC 8555 section 7.1.2).
#[derive(Debug, Deserialize)]
struct AccountObject {
    status: AccountStatus,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum AccountStatus {
    Deactivated,
    Revoked,
    #[serde(other)]
    Valid,
}

impl AcmeSession {
    pub(super) fn new(account: Account, transport: Transport, caa_identities: Vec<String>) -> Self {
        let account_url = account.id().to_owned();
        Self { account, transport, account_url, caa_identities, order: Mutex::default() }
    }

    /// Returns the URL of the account.
    #[must_use]
    pub fn account_url(&self) -> &str {
        &self.account_url
    }

    /// Returns the names with which CAA records allow the authority.
    #[must_use]
    pub fn caa_identities(&self) -> &[String] {
        &self.caa_identities
    }

    /// Creates an order for a name. `replaces` is the identifier of the certificate that it renews.
    ///
    /// # Errors
    /// Returns [`AcmeError`].
    pub async fn create_order(&self, name: &str, replaces: Option<&str>) -> Result<AcmeOrder, AcmeError> {
        let identifiers = [Identifier::Dns(name.to_owned())];
        let mut new = NewOrder::new(&identifiers);
        if let Some((authority_key_identifier, serial)) = replaces.and_then(|id| id.split_once('.')) {
            new = new.replaces(CertificateIdentifier {
                authority_key_identifier: authority_key_identifier.into(),
                serial: serial.into(),
            });
        }
        let created = match self.account.new_order(&new).await {
            Err(error) if replaces.is_some() && is_replacement_refused(&error, self.transport.last().status) => {
                self.account.new_order(&NewOrder::new(&identifiers)).await
            }
            created => created,
        };
        let order = match created {
            Ok(order) => order,
            Err(error) => return Err(self.classify(error).await),
        };
        self.view(order).await
    }

    /// Returns an order.
    ///
    /// # Errors
    /// Returns [`AcmeError`].
    pub async fn order(&self, url: &str) -> Result<AcmeOrder, AcmeError> {
        let order = self.load(url, true).await?;
        self.view(order).await
    }

    /// Asks the authority to validate the pending challenge of this type.
    ///
    /// # Errors
    /// Returns [`AcmeError`].
    pub async fn validate(&self, url: &str, kind: AcmeChallengeType) -> Result<(), AcmeError> {
        let mut order = self.load(url, false).await?;
        if let Err(error) = set_ready(&mut order, kind).await {
            return Err(self.classify(error).await);
        }
        self.keep(order);
        Ok(())
    }

    /// Asks the authority to issue, with this certificate signing request (DER).
    ///
    /// # Errors
    /// Returns [`AcmeError`].
    pub async fn finalize(&self, url: &str, request: &[u8]) -> Result<(), AcmeError> {
        let mut order = self.load(url, false).await?;
        if let Err(error) = order.finalize_csr(request).await {
            return Err(self.classify(error).await);
        }
        self.keep(order);
        Ok(())
    }

    /// Downloads the certificate of a valid order, as PEM.
    ///
    /// # Errors
    /// Returns [`AcmeError`].
    pub async fn certificate(&self, url: &str) -> Result<String, AcmeError> {
        let mut order = self.load(url, false).await?;
        match order.certificate().await {
            Ok(Some(chain)) => Ok(chain),
            Ok(None) => Err(AcmeError::Unavailable("the certificate is not ready".to_owned())),
            Err(error) => Err(self.classify(error).await),
        }
    }

    /// Returns the order of the last call, or requests it. With `refresh`, always requests its current status.
    async fn load(&self, url: &str, refresh: bool) -> Result<Order, AcmeError> {
        let kept = self.order.lock().unwrap_or_else(PoisonError::into_inner).take();
        let loaded = match kept.filter(|order| order.url() == url) {
            Some(order) if !refresh => return Ok(order),
            Some(mut order) => order.refresh().await.map(drop).map(|()| order),
            None => self.account.order(url.to_owned()).await,
        };
        match loaded {
            Ok(order) => Ok(order),
            Err(LibraryError::Api(problem)) if is_unknown_order(&problem, self.transport.last().status) => {
                Err(AcmeError::NoSuchOrder)
            }
            Err(error) => Err(self.classify(error).await),
        }
    }

    /// Keeps an order for the next call.
    fn keep(&self, order: Order) {
        *self.order.lock().unwrap_or_else(PoisonError::into_inner) = Some(order);
    }

    /// Classifies the error of a call. The type `unauthorized` has several reasons, so it concerns the account only if
    /// the account is no longer valid.
    async fn classify(&self, error: LibraryError) -> AcmeError {
        let is_unauthorized = matches!(&error, LibraryError::Api(problem) if has_type(problem, "unauthorized"));
        let classified = self.transport.classify(error);
        match classified {
            AcmeError::Refused(message) if is_unauthorized && self.is_account_rejected().await => {
                AcmeError::Account(message)
            }
            classified => classified,
        }
    }

    /// Requests the account, and returns whether it does not exist any more, was deactivated or was revoked.
    async fn is_account_rejected(&self) -> bool {
        // The library has no request for the account. The response is not an order, so the call always fails.
        match self.account.order(self.account_url.clone()).await {
            Err(LibraryError::Api(problem)) => {
                has_type(&problem, "unauthorized") || has_type(&problem, "accountDoesNotExist")
            }
            _ => {
                let exchange = self.transport.last();
                let account = serde_json::from_slice::<AccountObject>(&exchange.body);
                account.is_ok_and(|account| account.status != AccountStatus::Valid)
            }
        }
    }

    async fn view(&self, mut order: Order) -> Result<AcmeOrder, AcmeError> {
        let mut retry_after = self.transport.last().retry_after;
        let url = order.url().to_owned();
        let status = match order.state().status {
            OrderStatus::Pending => AcmeStatus::Pending,
            OrderStatus::Ready => AcmeStatus::Ready,
            OrderStatus::Processing => AcmeStatus::Processing,
            OrderStatus::Valid => AcmeStatus::Valid,
            OrderStatus::Invalid => AcmeStatus::Invalid,
        };
        let mut error = order.state().error.as_ref().map(explain);
        let mut challenges = Vec::new();
        if matches!(status, AcmeStatus::Pending | AcmeStatus::Invalid) {
            let mut authorizations = order.authorizations();
            while let Some(authorization) = authorizations.next().await {
                let authorization = match authorization {
                    Ok(authorization) => authorization,
                    Err(error) => return Err(self.classify(error).await),
                };
                retry_after = retry_after.max(self.transport.last().retry_after);
                // The error of a challenge is more specific than that of its order.
                let failed = authorization.challenges.iter().find_map(|challenge| challenge.error.as_ref());
                error = failed.map(explain).or(error);
                if authorization.status != AuthorizationStatus::Pending {
                    continue;
                }
                challenges
                    .extend(authorization.challenges.iter().filter_map(|challenge| self.view_challenge(challenge)));
            }
        }
        self.keep(order);
        Ok(AcmeOrder { url, status, challenges, error, retry_after })
    }

    /// Returns a challenge with its response. `None` for a type that is not supported.
    fn view_challenge(&self, challenge: &Challenge) -> Option<AcmeChallenge> {
        // The key authorization (RFC 8555 section 8.1).
        let authorization = format!("{}.{}", challenge.token, self.account.key_thumbprint());
        let (kind, response) = match challenge.r#type {
            ChallengeType::Dns01 => {
                let digest = digest(&SHA256, authorization.as_bytes());
                (AcmeChallengeType::Dns01, URL_SAFE_NO_PAD.encode(digest))
            }
            ChallengeType::Http01 => (AcmeChallengeType::Http01, authorization),
            _ => return None,
        };
        let (token, is_pending) = (challenge.token.clone(), challenge.status == ChallengeStatus::Pending);
        Some(AcmeChallenge { kind, token, response, is_pending })
    }
}

/// Asks the authority to validate the pending challenges of this type.
async fn set_ready(order: &mut Order, kind: AcmeChallengeType) -> Result<(), LibraryError> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        let Some(mut challenge) = authorization.challenge(library_type(kind)) else { continue };
        if challenge.status == ChallengeStatus::Pending {
            challenge.set_ready().await?;
        }
    }
    Ok(())
}

/// Returns whether an order can succeed without the certificate that it replaces. An authority accepts one order that
/// replaces a certificate (RFC 9773 section 5), and only from the account that ordered the certificate: the type is then
/// `unauthorized`, as for a rejected account. The library rejects the successful response of an authority that ignores
/// the certificate. `status` is that of the last response.
fn is_replacement_refused(error: &LibraryError, status: u16) -> bool {
    match error {
        LibraryError::Api(problem) => {
            let kinds = ["alreadyReplaced", "malformed", "unauthorized"];
            status == 409 || kinds.into_iter().any(|kind| has_type(problem, kind))
        }
        _ => (200..300).contains(&status),
    }
}

/// Returns whether the problem means that the account has no such order. An order of another account is unauthorized.
fn is_unknown_order(problem: &Problem, status: u16) -> bool {
    !has_type(problem, "accountDoesNotExist") && (status == 404 || has_type(problem, "unauthorized"))
}

fn library_type(kind: AcmeChallengeType) -> ChallengeType {
    match kind {
        AcmeChallengeType::Dns01 => ChallengeType::Dns01,
        AcmeChallengeType::Http01 => ChallengeType::Http01,
    }
}

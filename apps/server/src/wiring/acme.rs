//! The certificate authorities of `certificates`.

use async_trait::async_trait;
use certificates::{
    Authority, AuthorityError, AuthorityOrder, AuthoritySession, Challenge, OfferedChallenge, OrderStatus,
    RenewalWindow,
};
use kernel::{Secret, Time};
use providers::acme::{Acme, AcmeChallenge, AcmeChallengeType, AcmeError, AcmeOrder, AcmeSession, AcmeStatus};

pub(super) struct AuthorityPort(pub(super) Acme);

#[async_trait]
impl Authority for AuthorityPort {
    fn directory(&self) -> &str {
        self.0.directory()
    }

    async fn create_account(&self) -> Result<Secret, AuthorityError> {
        self.0.create_account().await.map_err(failure)
    }

    async fn open(&self, account: &Secret) -> Result<Box<dyn AuthoritySession>, AuthorityError> {
        let session = self.0.open(account).await.map_err(failure)?;
        Ok(Box::new(SessionPort(session)))
    }

    async fn renewal_window(&self, renewal_id: &str) -> Result<Option<RenewalWindow>, AuthorityError> {
        let window = self.0.renewal_window(renewal_id).await.map_err(failure)?;
        Ok(window.map(|(start, end)| RenewalWindow { start: Time::new(start), end: Time::new(end) }))
    }
}

struct SessionPort(AcmeSession);

#[async_trait]
impl AuthoritySession for SessionPort {
    fn account_url(&self) -> &str {
        self.0.account_url()
    }

    fn caa_identities(&self) -> &[String] {
        self.0.caa_identities()
    }

    async fn create_order(&self, name: &str, replaces: Option<&str>) -> Result<AuthorityOrder, AuthorityError> {
        self.0.create_order(name, replaces).await.map(order).map_err(failure)
    }

    async fn order(&self, url: &str) -> Result<AuthorityOrder, AuthorityError> {
        self.0.order(url).await.map(order).map_err(failure)
    }

    async fn validate(&self, url: &str, challenge: Challenge) -> Result<(), AuthorityError> {
        let kind = match challenge {
            Challenge::Dns01 => AcmeChallengeType::Dns01,
            Challenge::Http01 => AcmeChallengeType::Http01,
        };
        self.0.validate(url, kind).await.map_err(failure)
    }

    async fn finalize(&self, url: &str, request: &[u8]) -> Result<(), AuthorityError> {
        self.0.finalize(url, request).await.map_err(failure)
    }

    async fn certificate(&self, url: &str) -> Result<String, AuthorityError> {
        self.0.certificate(url).await.map_err(failure)
    }
}

fn order(order: AcmeOrder) -> AuthorityOrder {
    let AcmeOrder { url, status, challenges, error, retry_after } = order;
    let status = match status {
        AcmeStatus::Pending => OrderStatus::Pending,
        AcmeStatus::Ready => OrderStatus::Ready,
        AcmeStatus::Processing => OrderStatus::Processing,
        AcmeStatus::Valid => OrderStatus::Valid,
        AcmeStatus::Invalid => OrderStatus::Invalid,
    };
    let offered = |AcmeChallenge { kind, token, response, is_pending }| {
        let challenge = match kind {
            AcmeChallengeType::Dns01 => Challenge::Dns01,
            AcmeChallengeType::Http01 => Challenge::Http01,
        };
        OfferedChallenge { challenge, token, response, is_pending }
    };
    let challenges = challenges.into_iter().map(offered).collect();
    AuthorityOrder { url, status, challenges, error, retry_after }
}

fn failure(error: AcmeError) -> AuthorityError {
    match error {
        AcmeError::Unavailable(message) => AuthorityError::Unavailable(message),
        AcmeError::RateLimited { message, retry_after } => AuthorityError::RateLimited { message, retry_after },
        AcmeError::Overloaded { message, retry_after } => AuthorityError::Overloaded { message, retry_after },
        AcmeError::Account(message) => AuthorityError::Account(message),
        AcmeError::NoSuchOrder => AuthorityError::NoSuchOrder,
        AcmeError::Refused(message) => AuthorityError::Refused(message),
    }
}

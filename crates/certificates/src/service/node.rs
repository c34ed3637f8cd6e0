//! The operations of the programs that serve certificates: the nodes, and the control plane itself.

use kernel::{CertificateId, ProjectId};
use store::{Connection, SealedColumn};

use super::Certificates;
use super::sync::EXPIRING_SECONDS;
use crate::error::CertificateError;
use crate::model::{ApiCertificate, CertificateReference, IssuedCertificate};
use crate::repository::{CertificateRecord, CertificateRepository as _, OrderRepository as _};

/// The sealed private keys of certificates.
pub(super) const KEY: SealedColumn =
    SealedColumn { table: "certificates.certificates", column: "sealed", row_key: &[("id", "uuid")] };

impl Certificates {
    /// Returns the project of a certificate, or `None` for a certificate of the platform.
    ///
    /// # Errors
    /// Returns [`CertificateError::NotFound`] after the certificate was replaced or removed.
    pub async fn certificate_project(&self, id: CertificateId) -> Result<Option<ProjectId>, CertificateError> {
        self.store.connection().await?.certificate_project(id).await?.ok_or(CertificateError::NotFound)
    }

    /// Returns the current certificate of the API: that of its hostname, or the wildcard of the platform's domain if
    /// that one is missing, or expires within a week and before the wildcard. Returns `None` until one is issued. `held`
    /// is the certificate that the caller has, which is not read again.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn api_certificate(
        &self,
        held: Option<CertificateId>,
    ) -> Result<Option<ApiCertificate>, CertificateError> {
        let Some(hostname) = &self.config.api_hostname else { return Ok(None) };
        let mut connection = self.store.connection().await?;
        let own = connection.certificate_find_by_name(hostname).await?;
        let before = self.store.clock_rng().now().plus_seconds(EXPIRING_SECONDS);
        let is_expiring = |certificate: &CertificateRecord| certificate.not_after <= before;
        let wildcard = if own.as_ref().is_none_or(is_expiring) && self.is_below_platform_domain(hostname) {
            connection.certificate_find_by_name(&self.wildcard_name()).await?
        } else {
            None
        };
        let found = own.into_iter().chain(wildcard).max_by_key(|certificate| certificate.not_after);
        drop(connection);
        Ok(match found {
            None => None,
            Some(found) if held == Some(found.id) => Some(ApiCertificate::Held),
            Some(found) => Some(ApiCertificate::New(self.reveal(found)?)),
        })
    }

    /// Returns a certificate with its private key. The caller has checked that the node may have it.
    ///
    /// # Errors
    /// Returns [`CertificateError::NotFound`] after the certificate was replaced or removed.
    pub async fn certificate(&self, id: CertificateId) -> Result<IssuedCertificate, CertificateError> {
        let found = self.store.connection().await?.certificate_find(id).await?;
        self.reveal(found.ok_or(CertificateError::NotFound)?)
    }

    /// Opens the private key of a certificate.
    fn reveal(&self, certificate: CertificateRecord) -> Result<IssuedCertificate, CertificateError> {
        let CertificateRecord { id, name, chain, key, not_after, .. } = certificate;
        let row = SealedColumn::row(&[id.as_uuid().to_string()]);
        let key = self.store.open_text(KEY.associated_data(&row), &key)?;
        Ok(IssuedCertificate { reference: CertificateReference { id, name, not_after }, chain, key })
    }

    /// Returns the key authorization of an HTTP-01 challenge in progress.
    ///
    /// # Errors
    /// Returns [`CertificateError::NoChallenge`].
    pub async fn challenge_response(&self, host: &str, token: &str) -> Result<String, CertificateError> {
        let host = host.to_ascii_lowercase();
        let found = self.store.connection().await?.order_find_response(&host, token).await?;
        found.ok_or(CertificateError::NoChallenge)
    }

    /// Returns the certificates of the platform's domain, which all nodes serve.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn platform_certificates(&self, connection: &mut Connection) -> store::Result<Vec<CertificateReference>> {
        connection.certificate_list(None).await
    }
}

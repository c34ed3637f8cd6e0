//! Current certificates.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::seal::Sealed;
use kernel::{CertificateId, ProjectId, Time};
use store::{Connection, Result};

use crate::model::CertificateReference;
use crate::schema::{certificates, names};

/// A certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRecord {
    pub id: CertificateId,
    pub name: String,
    /// The directory of the authority.
    pub directory: String,
    /// PEM, the certificate of the name first.
    pub chain: String,
    /// The private key: PKCS #8 as PEM.
    pub key: Sealed,
    pub not_before: Time,
    pub not_after: Time,
    /// The identifier for renewal information (RFC 9773 section 4.1).
    pub renewal_id: Option<String>,
    pub created_at: Time,
}

/// The pattern of wildcards.
const WILDCARDS: &str = "*.%";

/// Certificates on a [`store::Connection`].
pub trait CertificateRepository {
    /// Stores the certificate of a name, in place of the former one.
    async fn certificate_put(&mut self, certificate: &CertificateRecord) -> Result<()>;

    /// Finds a certificate by its id.
    async fn certificate_find(&mut self, id: CertificateId) -> Result<Option<CertificateRecord>>;

    /// Returns the project of a certificate that nodes may have. The inner `None` means that it is a wildcard.
    async fn certificate_project(&mut self, id: CertificateId) -> Result<Option<Option<ProjectId>>>;

    /// Finds the certificate of a name.
    async fn certificate_find_by_name(&mut self, name: &str) -> Result<Option<CertificateRecord>>;

    /// Deletes the certificate of a name.
    async fn certificate_delete(&mut self, name: &str) -> Result<()>;

    /// Returns the certificates of the wanted names of a project, in the order of the names. `None` returns the
    /// wildcards.
    async fn certificate_list(&mut self, project: Option<ProjectId>) -> Result<Vec<CertificateReference>>;

    /// Counts the certificates of wanted names that expire before this time.
    async fn certificate_count_expiring(&mut self, before: Time) -> Result<i64>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = certificates)]
struct CertificateRow {
    id: CertificateId,
    name: String,
    directory: String,
    chain: String,
    key_id: String,
    sealed: Vec<u8>,
    not_before: Time,
    not_after: Time,
    renewal_id: Option<String>,
    created_at: Time,
}

impl CertificateRepository for Connection {
    async fn certificate_put(&mut self, certificate: &CertificateRecord) -> Result<()> {
        self.certificate_delete(&certificate.name).await?;
        let row = (
            certificates::id.eq(certificate.id),
            certificates::name.eq(&certificate.name),
            certificates::directory.eq(&certificate.directory),
            certificates::chain.eq(&certificate.chain),
            certificates::key_id.eq(&certificate.key.key_id),
            certificates::sealed.eq(&certificate.key.bytes),
            certificates::not_before.eq(certificate.not_before),
            certificates::not_after.eq(certificate.not_after),
            certificates::renewal_id.eq(&certificate.renewal_id),
            certificates::created_at.eq(certificate.created_at),
        );
        diesel::insert_into(certificates::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn certificate_find(&mut self, id: CertificateId) -> Result<Option<CertificateRecord>> {
        let query = certificates::table.find(id).select(CertificateRow::as_select());
        let found: Option<CertificateRow> = query.first(self).await.optional()?;
        Ok(found.map(CertificateRecord::from))
    }

    async fn certificate_project(&mut self, id: CertificateId) -> Result<Option<Option<ProjectId>>> {
        // Nodes do not serve the API.
        let is_for_nodes = names::project_id.is_not_null().or(names::name.like(WILDCARDS));
        let wanted = certificates::id.eq(id).and(names::wanted);
        let query = certificates::table.inner_join(names::table).filter(wanted.and(is_for_nodes));
        Ok(query.select(names::project_id).first(self).await.optional()?)
    }

    async fn certificate_find_by_name(&mut self, name: &str) -> Result<Option<CertificateRecord>> {
        let query = certificates::table.filter(certificates::name.eq(name)).select(CertificateRow::as_select());
        let found: Option<CertificateRow> = query.first(self).await.optional()?;
        Ok(found.map(CertificateRecord::from))
    }

    async fn certificate_delete(&mut self, name: &str) -> Result<()> {
        diesel::delete(certificates::table.filter(certificates::name.eq(name))).execute(self).await?;
        Ok(())
    }

    async fn certificate_list(&mut self, project: Option<ProjectId>) -> Result<Vec<CertificateReference>> {
        let wanted = certificates::table.inner_join(names::table).filter(names::wanted);
        let columns = (certificates::id, certificates::name, certificates::not_after);
        let query = wanted.order(certificates::name).select(columns).into_boxed();
        // An index cannot serve `IS NOT DISTINCT FROM`.
        let query = match project {
            Some(project) => query.filter(names::project_id.eq(project)),
            None => query.filter(names::project_id.is_null().and(names::name.like(WILDCARDS))),
        };
        let found: Vec<(CertificateId, String, Time)> = query.load(self).await?;
        let reference = |(id, name, not_after)| CertificateReference { id, name, not_after };
        Ok(found.into_iter().map(reference).collect())
    }

    async fn certificate_count_expiring(&mut self, before: Time) -> Result<i64> {
        let wanted = certificates::table.inner_join(names::table).filter(names::wanted);
        Ok(wanted.filter(certificates::not_after.lt(before)).count().get_result(self).await?)
    }
}

impl From<CertificateRow> for CertificateRecord {
    fn from(row: CertificateRow) -> Self {
        let CertificateRow {
            id,
            name,
            directory,
            chain,
            key_id,
            sealed,
            not_before,
            not_after,
            renewal_id,
            created_at,
        } = row;
        let key = Sealed { key_id, bytes: sealed };
        Self { id, name, directory, chain, key, not_before, not_after, renewal_id, created_at }
    }
}

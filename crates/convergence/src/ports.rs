//! The ports for contexts that own parts without stored values, and for contexts that receive reports.

use std::collections::BTreeMap;

use async_trait::async_trait;
use kernel::ProjectId;
use protocol::CertificateReference;
use store::Connection;

use crate::registry::MAX_BATCH;

/// Loads the values of the part `P`. The desired state stores only the fact that the part is desired.
#[async_trait]
pub trait PartSource<P>: Send + Sync {
    /// Returns the maximum number of projects of a query, at least 1. It must be low for a part with large values, because
    /// the size of a response is only checked after a query.
    fn max_batch(&self) -> usize {
        MAX_BATCH
    }

    /// Returns the current values of the part for these projects, in one query. Omits a project for which the part is
    /// no longer desired, because it was removed after the revision that the node is about to receive. If a value
    /// cannot be read, the result contains the error for that project, and the node keeps the last state.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable. The node then retries its poll.
    async fn load(
        &self,
        connection: &mut Connection,
        projects: &[ProjectId],
    ) -> store::Result<BTreeMap<ProjectId, store::Result<P>>>;
}

/// Loads the certificates of the platform's domain, which all nodes serve.
#[async_trait]
pub trait PlatformCertificates: Send + Sync {
    /// Returns references to the current certificates.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable. The node then retries its poll.
    async fn load(&self, connection: &mut Connection) -> store::Result<Vec<CertificateReference>>;
}

/// Receives all reports of one kind. Reports about one project arrive in the order in which its node observed them.
#[async_trait]
pub trait ReportReceiver<K>: Send + Sync {
    /// Stores a report about a project of the reporting node, in the transaction that accepts the batch. This
    /// transaction holds the locks of the placements of all projects in the batch. An error rolls back the whole batch,
    /// and the node retries it.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    async fn receive(&self, tx: &mut Connection, project: ProjectId, report: K) -> store::Result<()>;
}

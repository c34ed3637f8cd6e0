//! Certificates in the database of the control plane, as if they were issued: sealed, and listed in the desired state.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use certificates::{
    CertificateRecord, CertificateReference, CertificateRepository as _, NameRepository as _, NameState, NameUpdate,
};
use convergence::{Convergence, Core, EmbeddedCore, PartWriter};
use kernel::{CertificateId, OrgId, ProjectId, Time};
use protocol::Certificates;
use serde_json::Value;
use store::{Connection, SealedColumn, Store};
use uuid::Uuid;

use super::authority::{Leaf, VALID_YEARS};
use crate::connected_app::SharedKey;

/// Writes to the tables of the context `certificates`.
pub struct Publisher {
    store: Store,
    writer: PartWriter<Certificates>,
    /// The projects by name.
    projects: HashMap<String, (ProjectId, OrgId)>,
    validity: [Time; 2],
}

impl Publisher {
    /// Prepares the projects that exist. `key` is the sealing key of the server.
    pub async fn new(key: &SharedKey, database_url: &str) -> Result<Self> {
        let store = key.store(database_url)?;
        let (dashboard_url, site_url) = (String::new(), String::new());
        let platform = protocol::Platform { dashboard_url, site_url, certificates: Vec::new() };
        let core: Arc<dyn Core> = Arc::new(EmbeddedCore::default());
        let writer = Convergence::builder(store.clone(), Some(core), platform).register_part()?;
        let mut projects = HashMap::new();
        for row in chaos::rows(database_url, "SELECT name, id, org_id FROM projects.projects").await? {
            let text = |field: &str| row.get(field).and_then(Value::as_str).with_context(|| format!("no {field}"));
            let id = |field: &str| anyhow::Ok(text(field)?.parse::<Uuid>()?);
            projects.insert(text("name")?.to_owned(), (id("id")?.into(), id("org_id")?.into()));
        }
        let [first, last] = VALID_YEARS.map(new_year);
        Ok(Self { store, writer, projects, validity: [first?, last?] })
    }

    /// Stores certificates of a project in place of the former ones of their names, and lists them in the desired state.
    pub async fn publish(&self, project: &str, certificates: &[(&str, &Leaf)]) -> Result<()> {
        let (project, org) = *self.projects.get(project).with_context(|| format!("no project {project}"))?;
        let publish = async |tx: &mut Connection| {
            for (name, leaf) in certificates {
                self.store_certificate(tx, (project, org), name, leaf).await?;
            }
            let certificates = tx.certificate_list(Some(project)).await?.into_iter().map(reference).collect();
            self.writer.write(tx, project, &Certificates { certificates }).await?;
            anyhow::Ok(())
        };
        self.store.transaction_unaudited(publish).await
    }

    async fn store_certificate(
        &self,
        tx: &mut Connection,
        (project, org): (ProjectId, OrgId),
        name: &str,
        leaf: &Leaf,
    ) -> Result<()> {
        let [not_before, not_after] = self.validity;
        tx.name_upsert(name, org, Some(project), not_after).await?;
        let update = NameUpdate {
            state: NameState::Active,
            due_at: not_after,
            failures: 0,
            last_error: None,
            renew_at: Some(not_after),
            notified_expiry: None,
        };
        // No run has claimed the name.
        tx.name_update(name, 0, update).await?;
        let id: CertificateId = self.store.clock_rng().id();
        let row = SealedColumn::row(&[id.as_uuid().to_string()]);
        let mut columns = certificates::SEALED_COLUMNS.iter();
        let column = columns.find(|column| column.table == "certificates.certificates").context("no sealed column")?;
        let certificate = CertificateRecord {
            id,
            name: name.to_owned(),
            directory: "https://ca.example/directory".to_owned(),
            chain: leaf.chain.clone(),
            key: self.store.seal(column.associated_data(&row), leaf.key.as_bytes())?,
            not_before,
            not_after,
            renewal_id: None,
            created_at: self.store.clock_rng().now(),
        };
        Ok(tx.certificate_put(&certificate).await?)
    }
}

fn reference(reference: CertificateReference) -> protocol::CertificateReference {
    let CertificateReference { id, name, not_after } = reference;
    protocol::CertificateReference { id: id.to_string(), name, not_after: not_after.to_string() }
}

fn new_year(year: i32) -> Result<Time> {
    Ok(Time::new(format!("{year}-01-01T00:00:00Z").parse()?))
}

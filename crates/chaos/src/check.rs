//! Reads the stored result of each write directly from Postgres.

use std::collections::HashMap;

use anyhow::Result;
use serde_json::Value;
use tokio::task::AbortHandle;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::invariants::setup_sql;
use crate::write::WriteKind;

/// A direct connection to Postgres that bypasses the service.
pub struct Database {
    pub client: Client,
    driver: AbortHandle,
}

impl Database {
    /// Connects to the database at this URL.
    pub async fn connect(url: &str) -> Result<Self> {
        let (client, driver) = tokio_postgres::connect(url, NoTls).await?;
        let driver = tokio::spawn(async move {
            // If the connection fails, every query also fails, and reports the error.
            let _ = driver.await;
        });
        let database = Self { client, driver: driver.abort_handle() };
        database.client.batch_execute(setup_sql()).await?;
        Ok(database)
    }

    /// Runs a statement and returns each row as a JSON object.
    pub async fn rows(&self, statement: &str) -> Result<Vec<Value>> {
        let messages = self.client.simple_query(&format!("SELECT to_jsonb(t) FROM ({statement}) t")).await?;
        let texts = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        texts.map(|text| Ok(serde_json::from_str(text)?)).collect()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The rows that Postgres stores for one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredWrite {
    pub rows: i64,
    /// The number of audit rows for these rows.
    pub audit_rows: i64,
    /// The public id, for kinds that have one.
    pub id: Option<String>,
    /// The written content other than the name.
    pub content: Option<String>,
}

impl WriteKind {
    /// Selects all rows of this kind in an organization: name, row count, audit row count, id, content.
    const fn statement(self) -> &'static str {
        match self {
            Self::Project => {
                "SELECT p.name, count(DISTINCT p.id), count(a.id), min(pg_temp.public_id('prj', p.id)), NULL \
                 FROM projects.projects p JOIN orgs.orgs o ON o.id = p.org_id \
                 LEFT JOIN store.audit a ON a.event = 'project.create' AND a.target = pg_temp.public_id('prj', p.id) \
                 WHERE o.slug = $1 GROUP BY p.name"
            }
            Self::Deployment => {
                "SELECT d.git_message, count(DISTINCT d.id), count(a.id), min(d.version)::text, \
                 min('sha256:' || encode(d.digest, 'hex')) FROM projects.deployments d \
                 JOIN projects.projects p ON p.id = d.project_id JOIN orgs.orgs o ON o.id = p.org_id \
                 LEFT JOIN store.audit a ON a.event = 'deployment.create' AND a.target = pg_temp.public_id('prj', p.id) \
                     AND (a.data ->> 'version')::int = d.version \
                 WHERE o.slug = $1 GROUP BY d.git_message"
            }
            Self::Token => {
                "SELECT t.name, count(DISTINCT t.id), count(a.id), min(pg_temp.public_id('pat', t.id)), NULL FROM identity.access_tokens t \
                 JOIN identity.users u ON u.id = t.user_id \
                 LEFT JOIN store.audit a ON a.event = 'token.create' AND a.target = pg_temp.public_id('pat', t.id) \
                 WHERE u.subject = $1 GROUP BY t.name"
            }
            Self::Invite => {
                "SELECT split_part(i.email, '@', 1), count(DISTINCT i.id), count(a.id), min(pg_temp.public_id('inv', i.id)), min(i.role) \
                 FROM orgs.invites i JOIN orgs.orgs o ON o.id = i.org_id \
                 LEFT JOIN store.audit a ON a.event = 'member.invite' AND a.target = pg_temp.public_id('inv', i.id) \
                 WHERE o.slug = $1 GROUP BY i.email"
            }
            Self::Rrset => {
                "SELECT r.name, count(DISTINCT r.kind), count(a.id), NULL, min(encode(r.rdata, 'hex')) FROM dns.rrsets r \
                 JOIN dns.zones z ON z.id = r.zone_id JOIN orgs.orgs o ON o.id = z.org_id \
                 LEFT JOIN store.audit a ON a.event = 'dns.rrset.set' AND a.target = pg_temp.public_id('zon', z.id) \
                     AND a.data ->> 'rrsets' LIKE '%+ ' || r.name || '.' || z.name || '%A\"%' \
                 WHERE o.slug = $1 AND r.managed_by IS NULL GROUP BY r.name"
            }
        }
    }
}

/// Returns the stored rows of one kind in an organization, by name.
pub async fn stored_writes(database: &Database, kind: WriteKind, org: &str) -> Result<HashMap<String, StoredWrite>> {
    let rows = database.client.query(kind.statement(), &[&org]).await?;
    let read = |row: &tokio_postgres::Row| {
        let name = row.try_get::<_, Option<String>>(0)?.unwrap_or_default();
        let (rows, audit_rows, id, content) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
        Ok((name, StoredWrite { rows, audit_rows, id, content }))
    };
    rows.iter().map(read).collect()
}

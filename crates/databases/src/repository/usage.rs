//! The operations of a project in a period, for the daily limits. The rows of operations and exports are kept for
//! longer than a day.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{ProjectId, Time};
use store::{Connection, Result};

/// The operations that have a daily limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitedOperation {
    Restore,
    Export,
    /// A deletion or an activation of the database.
    Change,
}

/// The usage of daily limits on a [`store::Connection`].
pub trait UsageRepository {
    /// Returns the time of the `number`-th newest operation that began after `since`, counted from 1. Returns `None` if
    /// there are fewer operations.
    async fn usage_nth_newest(
        &mut self,
        project: ProjectId,
        operation: LimitedOperation,
        since: Time,
        number: u32,
    ) -> Result<Option<Time>>;
}

const RESTORES: &str =
    "SELECT created_at AS at FROM databases.operations WHERE project_id = $1 AND kind = 'restore_generation'";

const EXPORTS: &str = "SELECT started_at AS at FROM databases.exports WHERE project_id = $1";

/// Reads the times of activations and deletions. The row of a deleted database no longer exists, so the time of its
/// activation is read from its id, which begins with the milliseconds of its creation (RFC 9562 section 5.7).
const CHANGES: &str = "SELECT created_at AS at FROM databases.operations WHERE project_id = $1 AND kind = 'delete' \
    UNION ALL SELECT created_at FROM databases.databases WHERE project_id = $1 \
    UNION ALL SELECT to_timestamp( \
        ('x' || left(replace(deleted.database_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0) \
    FROM (SELECT DISTINCT o.database_id FROM databases.operations o WHERE o.project_id = $1 AND o.kind = 'delete' \
        AND NOT EXISTS (SELECT FROM databases.databases d WHERE d.id = o.database_id)) deleted";

#[derive(QueryableByName)]
struct AtRow {
    #[diesel(sql_type = Timestamptz)]
    at: Time,
}

impl UsageRepository for Connection {
    async fn usage_nth_newest(
        &mut self,
        project: ProjectId,
        operation: LimitedOperation,
        since: Time,
        number: u32,
    ) -> Result<Option<Time>> {
        let operations = match operation {
            LimitedOperation::Restore => RESTORES,
            LimitedOperation::Export => EXPORTS,
            LimitedOperation::Change => CHANGES,
        };
        let query = format!("SELECT at FROM ({operations}) used WHERE at > $2 ORDER BY at DESC OFFSET $3 LIMIT 1");
        let query = diesel::sql_query(query)
            .bind::<Uuid, _>(project)
            .bind::<Timestamptz, _>(since)
            .bind::<BigInt, _>(i64::from(number) - 1);
        Ok(query.get_result::<AtRow>(self).await.optional()?.map(|row| row.at))
    }
}

//! Appending to the audit log.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::audit::{Actor, Event};
use kernel::{AuditId, ClockRng, OrgId, Time, UserId};
use serde_json::Value;

use crate::schema::audit;
use crate::{Connection, Result};

#[derive(Insertable)]
#[diesel(table_name = audit)]
struct NewRow<'a> {
    id: AuditId,
    event: &'a str,
    org_id: Option<OrgId>,
    actor_id: Option<UserId>,
    credential: String,
    target: &'a str,
    data: &'a Value,
    request_id: &'a str,
    created_at: Time,
}

pub(crate) async fn append(
    connection: &mut Connection,
    clock_rng: &ClockRng,
    actor: &Actor,
    event: &Event,
) -> Result<()> {
    let now = clock_rng.now();
    let row = NewRow {
        id: clock_rng.id_at(now),
        event: event.name,
        org_id: event.org,
        actor_id: actor.user,
        credential: actor.credential.to_string(),
        target: &event.target,
        data: &event.data,
        request_id: &actor.request_id,
        created_at: now,
    };
    diesel::insert_into(audit::table).values(row).execute(connection).await?;
    Ok(())
}

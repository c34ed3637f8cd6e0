//! Appending to the audit log.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Jsonb, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::audit::{Actor, Event};
use kernel::{AuditId, ClockRng, OrgId, Time, UserId};
use serde::Serialize;
use serde_json::Value;

use crate::caller_check::{CallerCheck, LockedCaller, Parameters, bind};
use crate::schema::audit;
use crate::{Connection, Prepared, Result, Store};

#[derive(Insertable)]
#[diesel(table_name = audit)]
struct NewRow<'a> {
    id: AuditId,
    event: &'a str,
    org_id: Option<OrgId>,
    account_id: Option<UserId>,
    actor_id: Option<UserId>,
    credential: String,
    target: &'a str,
    data: &'a Value,
    request_id: &'a str,
    created_at: Time,
}

/// Appends the audit row without a check of the caller.
pub(crate) async fn append(
    connection: &mut Connection,
    clock_rng: &ClockRng,
    actor: &Actor,
    event: &Event,
) -> Result<()> {
    let row = NewRow::new(clock_rng, actor, event);
    diesel::insert_into(audit::table).values(row).execute(connection).await?;
    Ok(())
}

/// Appends the audit row of a user, if `check` authorizes the user. Returns false if the user has lost the permission, or
/// if the check skips the user's locked rows.
pub(crate) async fn append_authorized(
    connection: &mut Connection,
    clock_rng: &ClockRng,
    actor: &Actor,
    event: &Event,
    (check, parameters, locked_caller): (&CallerCheck, Parameters, LockedCaller),
) -> Result<bool> {
    let NewRow { id, event, org_id, account_id, actor_id, credential, target, data, request_id, created_at } =
        NewRow::new(clock_rng, actor, event);
    let query = bind(check.append_audit(locked_caller), parameters).bind::<Uuid, _>(id).bind::<Text, _>(event);
    let query = query.bind::<Nullable<Uuid>, _>(org_id).bind::<Nullable<Uuid>, _>(actor_id);
    let query = query.bind::<Text, _>(credential).bind::<Text, _>(target).bind::<Jsonb, _>(data);
    let query = query.bind::<Text, _>(request_id).bind::<Timestamptz, _>(created_at);
    let query = query.bind::<Nullable<Uuid>, _>(account_id);
    Ok(Prepared(query).execute(connection).await? == 1)
}

/// Returns the statement that appends an audit row if `lock` selects a row. `$1` to `$4` are the parameters of the
/// caller check.
pub(crate) fn append_if(lock: &str) -> String {
    format!(
        "WITH caller AS MATERIALIZED ({lock}) \
         INSERT INTO store.audit (id, event, org_id, actor_id, credential, target, data, request_id, created_at, account_id) \
         SELECT $5, $6, $7, $8, $9, $10, $11, $12, $13, $14 FROM caller"
    )
}

/// Selects audit events. The default selects all.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// If set, selects only events with this name.
    pub event: Option<String>,
    /// If set, selects only events of this user: as the actor, or about the user's account.
    pub user: Option<UserId>,
    /// If set, selects only events of this organization.
    pub org: Option<OrgId>,
    /// If set, selects only events at this time or later.
    pub since: Option<Time>,
}

/// An audit event with all its columns, for operators.
#[derive(Debug, Clone, PartialEq, Serialize, QueryableByName)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    #[diesel(sql_type = Uuid)]
    pub id: AuditId,
    #[diesel(sql_type = Text)]
    pub event: String,
    #[diesel(sql_type = Nullable<Uuid>)]
    pub org_id: Option<OrgId>,
    #[diesel(sql_type = Nullable<Uuid>)]
    pub account_id: Option<UserId>,
    #[diesel(sql_type = Nullable<Uuid>)]
    pub actor_id: Option<UserId>,
    #[diesel(sql_type = Text)]
    pub credential: String,
    #[diesel(sql_type = Text)]
    pub target: String,
    #[diesel(sql_type = Jsonb)]
    pub data: Value,
    #[diesel(sql_type = Text)]
    pub request_id: String,
    #[diesel(sql_type = Timestamptz)]
    pub created_at: Time,
}

/// The number of events in a step of [`Store::audit_events`]. No index finds the events of a user or a name in all
/// organizations, because each change would pay for it. A statement that reads the whole log would reach its timeout.
const STEP: i64 = 10_000;

/// The oldest id of the next step, if the step is full. A step contains only events that an index finds: those of the
/// organization, with the name.
const STEP_START: &str = "\
    SELECT id FROM store.audit \
    WHERE ($1::uuid IS NULL OR org_id = $1 AND ($2::text IS NULL OR event = $2)) \
      AND ($3::uuid IS NULL OR id >= $3) AND ($4::uuid IS NULL OR id < $4) \
    ORDER BY id DESC OFFSET $5 - 1 LIMIT 1";

const READ: &str = "\
    SELECT id, event, org_id, account_id, actor_id, credential, target, data, request_id, created_at FROM store.audit \
    WHERE ($1::text IS NULL OR event = $1) AND ($2::uuid IS NULL OR actor_id = $2 OR account_id = $2) \
      AND ($3::uuid IS NULL OR org_id = $3) AND ($4::uuid IS NULL OR id >= $4) AND ($5::uuid IS NULL OR id < $5) \
    ORDER BY id DESC LIMIT $6";

#[derive(QueryableByName)]
struct StepStart {
    #[diesel(sql_type = Uuid)]
    id: AuditId,
}

impl Store {
    /// Returns the newest audit events of all organizations and accounts, newest first. Reads the log in steps, so it may
    /// take minutes, but no statement takes long.
    ///
    /// # Errors
    /// Returns an error if a statement fails.
    pub async fn audit_events(&self, query: &AuditQuery, limit: i64) -> Result<Vec<AuditRecord>> {
        let AuditQuery { event, user, org, since } = query;
        let since = since.map(AuditId::earliest_at);
        let mut connection = self.connection().await?;
        let (mut before, mut records, mut left) = (None::<AuditId>, Vec::new(), limit);
        loop {
            let step = diesel::sql_query(STEP_START)
                .bind::<Nullable<Uuid>, _>(*org)
                .bind::<Nullable<Text>, _>(event)
                .bind::<Nullable<Uuid>, _>(since)
                .bind::<Nullable<Uuid>, _>(before)
                .bind::<BigInt, _>(STEP);
            let start: Option<StepStart> = step.get_result(&mut *connection).await.optional()?;
            let start = start.map(|step| step.id);
            let read = diesel::sql_query(READ)
                .bind::<Nullable<Text>, _>(event)
                .bind::<Nullable<Uuid>, _>(*user)
                .bind::<Nullable<Uuid>, _>(*org)
                .bind::<Nullable<Uuid>, _>(start.or(since))
                .bind::<Nullable<Uuid>, _>(before)
                .bind::<BigInt, _>(left);
            let found: Vec<AuditRecord> = read.load(&mut *connection).await?;
            left = left.saturating_sub(i64::try_from(found.len()).unwrap_or(i64::MAX));
            records.extend(found);
            if left == 0 || start.is_none() {
                return Ok(records);
            }
            before = start;
        }
    }

    /// Appends an audit event for another organization that the change affects, in the transaction of the change. The
    /// event of the operation itself is part of [`Outcome::Changed`](crate::Outcome::Changed).
    ///
    /// The actor is the system, because an organization's log must not name users of another organization.
    ///
    /// # Errors
    /// Returns an error if the statement fails.
    pub async fn append_system_event(&self, tx: &mut Connection, job: &str, event: &Event) -> Result<()> {
        append(tx, self.clock_rng(), &Actor::service(job), event).await
    }
}

impl<'a> NewRow<'a> {
    fn new(clock_rng: &ClockRng, actor: &'a Actor, event: &'a Event) -> Self {
        let now = clock_rng.now();
        Self {
            id: clock_rng.id_at(now),
            event: event.name,
            org_id: event.org,
            account_id: event.account,
            actor_id: actor.user,
            credential: actor.credential.to_string(),
            target: &event.target,
            data: &event.data,
            request_id: &actor.request_id,
            created_at: now,
        }
    }
}

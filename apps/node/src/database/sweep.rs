//! Periodic work on all databases, with a few statements for the whole cluster.
//!
//! The sweep compares the observed roles and databases with the desired ones, and wakes the tasks of those that differ:
//! after a manual change, a tenant's change of its role, or growth beyond a limit. It also removes roles,
//! prepared databases and tombstones without an owner.

use std::collections::{BTreeMap, BTreeSet};

use protocol::Database;

use super::admin::{AdminConnection, quote_ident};
use super::autovacuum::{WorkerLimits, terminate_slow_workers};
use super::create::remove;
use super::logins::Logins;
use super::names::{self, Names};
use super::plan::Plan;
use super::sessions::{TransactionLimits, terminate_harmful};
use super::snapshot::{Filter, ObservedRole, Snapshot};
use super::status::MIN_SIZE_CHANGE;
use super::tables::{self, DatabaseRow};
use super::time::is_plausible;
use super::{Shared, usage};

/// The result of a sweep.
pub struct Swept {
    /// The projects whose tasks must be woken.
    pub differing: Vec<String>,
    /// The unused roles of projects ([`Plan::unused`]).
    pub unused: BTreeMap<String, Vec<String>>,
    /// All projects that have a database here.
    pub projects: Vec<String>,
}

/// Compares all databases.
pub async fn sweep(shared: &Shared, measures_usage: bool) -> anyhow::Result<Swept> {
    let client = shared.admin.connect().await?;
    let ended = terminate_harmful(&client, TransactionLimits::default()).await?;
    if ended > 0 {
        tracing::warn!(ended, "ended the sessions of tenants that harm others");
    }
    let ended = terminate_slow_workers(&client, WorkerLimits::default()).await?;
    if ended > 0 {
        tracing::warn!(ended, "ended autovacuum workers that ran too long in the databases of projects");
    }
    let snapshot = Snapshot::read(&*client, &Filter::All).await?;
    // The rows are read after the snapshot. The row of a database is inserted before its roles are created, so each
    // role of the snapshot that belongs to a database has a row.
    let rows = tables::all(&*client).await?;
    let desired = shared.registry.roles();
    let states: Vec<Logins> = desired.iter().map(|(_, roles)| roles.state).collect();
    shared.metrics.set_databases(&states);
    shared.metrics.connections.set(count_sessions(&client).await?);
    shared.metrics.oldest_id_age.set(usage::oldest_id_age(&client).await?);
    let (mut differing, mut unused) = (BTreeSet::new(), BTreeMap::new());
    for (project, roles) in &desired {
        let plan = Plan::new(roles, &snapshot);
        if plan.is_needed() {
            differing.insert(project.clone());
        }
        if !plan.unused.is_empty() {
            unused.insert(project.clone(), plan.unused);
        }
    }
    if measures_usage {
        differing.extend(changed_usage(shared, &client, &rows).await?);
    }
    let known = known_roles(&rows, desired.iter().flat_map(|(_, roles)| roles.role_names()));
    remove_strays(&client, &snapshot, &rows, &known).await?;
    let projects = rows.into_iter().map(|row| row.project).collect();
    Ok(Swept { differing: differing.into_iter().collect(), unused, projects })
}

/// Drops the tombstones whose retention is over. Logs the failure of a tombstone, and continues with the others. Returns
/// false if a clock is not plausible.
pub async fn remove_tombstones(shared: &Shared) -> anyhow::Result<bool> {
    const DUE: &str = "SELECT name, project FROM svc.tombstones WHERE drop_at <= now() ORDER BY drop_at";
    let client = shared.admin.connect().await?;
    if !is_plausible(&client, &shared.clock).await? {
        return Ok(false);
    }
    for row in client.query(DUE, &[]).await? {
        let (name, project): (String, String) = (row.get(0), row.get(1));
        if let Err(error) = remove(&client, &name).await {
            tracing::warn!(project, name, error = format!("{error:#}"), "failed to drop a tombstone");
            continue;
        }
        client.execute("DELETE FROM svc.tombstones WHERE name = $1", &[&name]).await?;
        tracing::info!(project, name, "dropped a tombstone");
    }
    Ok(true)
}

async fn count_sessions(client: &AdminConnection) -> anyhow::Result<i64> {
    const COUNT: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname ~ '^(db|new)_' AND usename IS NOT NULL";
    Ok(client.query_one(COUNT, &[]).await?.get(0))
}

/// Returns the projects whose usage changes the state of their logins or must be reported.
async fn changed_usage(
    shared: &Shared,
    client: &AdminConnection,
    databases: &[DatabaseRow],
) -> anyhow::Result<Vec<String>> {
    let measured = usage::all(client).await?;
    let old: Vec<&String> = measured.iter().filter(|(_, usage)| usage.has_old_ids()).map(|(name, _)| name).collect();
    if !old.is_empty() {
        tracing::error!(databases = ?old, "refusing the logins of databases whose transaction ids are not frozen");
    }
    let known: BTreeMap<&str, Option<u64>> =
        databases.iter().map(|row| (row.project.as_str(), row.max_login_bytes)).collect();
    let entries = shared.registry.entries().into_iter();
    let has_changed = |project: &str, desired: &Database, logins: Logins| {
        let usage = Names::new(&desired.id).and_then(|names| measured.get(&names.database()).copied());
        usage.is_some_and(|usage| {
            let reported = shared.statuses.size(project);
            let previous = known.get(project).copied().flatten();
            Logins::of(desired, usage, previous) != logins || reported.abs_diff(usage.bytes) >= MIN_SIZE_CHANGE
        })
    };
    let changed = entries.filter(|entry| has_changed(&entry.project, &entry.desired, entry.logins));
    Ok(changed.map(|entry| entry.project).collect())
}

/// Returns the roles that belong to a database of the node.
fn known_roles(rows: &[DatabaseRow], desired: impl Iterator<Item = String>) -> BTreeSet<String> {
    let names = rows.iter().filter_map(|row| Names::new(&row.id));
    names.flat_map(|it| [it.database(), it.app(), it.node(), it.dump(), it.load(), it.auth()]).chain(desired).collect()
}

/// Removes the roles and prepared databases that belong to no database.
async fn remove_strays(
    client: &AdminConnection,
    snapshot: &Snapshot,
    rows: &[DatabaseRow],
    known: &BTreeSet<String>,
) -> anyhow::Result<()> {
    let is_known = |name: &String, role: &ObservedRole| known.contains(name) || !role.member_of.is_disjoint(known);
    for (name, role) in snapshot.roles.iter().filter(|(name, role)| !is_known(name, role)) {
        let quoted = quote_ident(name);
        if role.attributes.contains("LOGIN") {
            client.batch_execute(&format!("ALTER ROLE {quoted} NOLOGIN")).await?;
        } else if !role.has_session && !role.is_referenced {
            client.batch_execute(&format!("DROP ROLE IF EXISTS {quoted}")).await?;
        }
    }
    let prepared = rows.iter().filter_map(|row| names::prepared(row.prepared_operation.as_deref()?));
    let prepared: BTreeSet<String> = prepared.collect();
    for name in snapshot.databases.keys().filter(|name| names::is_prepared(name) && !prepared.contains(*name)) {
        tracing::warn!(name, "dropping a prepared database that no operation needs");
        remove(client, name).await?;
    }
    Ok(())
}

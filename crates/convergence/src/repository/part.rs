//! The parts of the desired state.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{Digest, NodeId, ProjectId, Time};
use protocol::Change;
use serde_json::Value;
use store::{Connection, Prepared, Result};

use crate::schema::{nodes, parts};

/// A part to write.
pub struct PartRecord {
    pub project: ProjectId,
    pub part: &'static str,
    /// The home node, and the revision that the part gets. `None` while the placement is pending.
    pub home: Option<(NodeId, i64)>,
    /// The value. `None` if the part is no longer desired.
    pub desired: Option<Value>,
    pub at: Time,
}

/// The maximum number of parts that one query returns, so that the size of the result does not increase with the number
/// of projects.
const MAX_PARTS: u16 = 5000;

/// The stored desired state of a node, or the changes to it since a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredState {
    pub revision: i64,
    pub batch: i64,
    /// The first parts by ascending revision.
    pub parts: Vec<Change>,
    /// Whether there are further parts.
    pub has_more: bool,
}

/// The parts of the desired state on a [`store::Connection`].
pub trait PartRepository {
    /// Writes a part of a project whose placement is locked.
    async fn part_upsert(&mut self, part: PartRecord) -> Result<()>;

    /// Returns whether the part of this project is desired.
    async fn part_is_desired(&mut self, project: ProjectId, part: &str) -> Result<bool>;

    /// Gives a desired part of a locked placement a new revision of its home node.
    async fn part_set_revision(&mut self, project: ProjectId, part: &str, revision: i64, at: Time) -> Result<()>;

    /// Returns the given projects for which one of the parts is desired.
    async fn part_filter_desired(&mut self, projects: &[ProjectId], parts: &[&str]) -> Result<Vec<ProjectId>>;

    /// Counts the parts of these projects.
    async fn part_count(&mut self, projects: &[ProjectId]) -> Result<i64>;

    /// Counts the desired parts of this project.
    async fn part_count_desired(&mut self, project: ProjectId) -> Result<i64>;

    /// Removes all parts of a locked placement from the desired state. Each part gets a revision above `after`. `after`
    /// is `None` for a pending placement.
    async fn part_remove_all(&mut self, project: ProjectId, after: Option<i64>, at: Time) -> Result<()>;

    /// Deletes the part of a project whose placement is locked. Returns false if the project does not have it.
    async fn part_delete(&mut self, project: ProjectId, part: &str) -> Result<bool>;

    /// Returns the first parts of a node's desired state that changed after `since`, in one snapshot. Returns `None` if
    /// the node does not exist.
    async fn desired_since(&mut self, node: NodeId, since: i64) -> Result<Option<StoredState>>;

    /// Returns whether the desired state of the node contains this bundle.
    async fn bundle_is_placed(&mut self, node: NodeId, bundle: Digest) -> Result<bool>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = parts)]
struct PartRow {
    project_id: ProjectId,
    revision: i64,
    part: String,
    desired: Option<serde_json::Value>,
}

/// Gives the removed parts the revisions from `$1 + 1`. If `$1` is null, the parts have no node and get revision 0.
const REMOVE_PARTS: &str = "UPDATE convergence.parts p SET desired = NULL, updated_at = $2, \
        revision = coalesce($1 + removed.number, 0) FROM ( \
        SELECT project_id, part, row_number() OVER (ORDER BY part) AS number \
        FROM convergence.parts WHERE project_id = $3 AND desired IS NOT NULL \
    ) removed WHERE p.project_id = removed.project_id AND p.part = removed.part";

/// The names of the part and of its field are literals, as in the index that serves this query.
const FIND_SITE_WITH_BUNDLE: &str =
    "SELECT FROM convergence.parts WHERE node_id = $1 AND part = 'site' AND desired ->> 'bundle' = $2 LIMIT 1";

impl PartRepository for Connection {
    async fn part_upsert(&mut self, part: PartRecord) -> Result<()> {
        let PartRecord { project, part, home, desired, at } = part;
        let change = (
            parts::node_id.eq(home.map(|(node, _)| node)),
            parts::revision.eq(home.map_or(0, |(_, revision)| revision)),
            parts::desired.eq(desired),
            parts::updated_at.eq(at),
        );
        let upsert = diesel::insert_into(parts::table)
            .values((parts::project_id.eq(project), parts::part.eq(part), change.clone()))
            .on_conflict((parts::project_id, parts::part))
            .do_update()
            .set(change);
        Prepared(upsert).execute(self).await?;
        Ok(())
    }

    async fn part_is_desired(&mut self, project: ProjectId, part: &str) -> Result<bool> {
        let desired = parts::table.find((project, part)).filter(parts::desired.is_not_null());
        Ok(diesel::select(diesel::dsl::exists(desired)).get_result(self).await?)
    }

    async fn part_set_revision(&mut self, project: ProjectId, part: &str, revision: i64, at: Time) -> Result<()> {
        let update = diesel::update(parts::table.find((project, part)));
        update.set((parts::revision.eq(revision), parts::updated_at.eq(at))).execute(self).await?;
        Ok(())
    }

    async fn part_filter_desired(&mut self, projects: &[ProjectId], parts: &[&str]) -> Result<Vec<ProjectId>> {
        let is_one = parts::part.eq_any(parts.iter().copied());
        let desired = parts::project_id.eq_any(projects).and(is_one).and(parts::desired.is_not_null());
        Ok(parts::table.filter(desired).select(parts::project_id).load(self).await?)
    }

    async fn part_count(&mut self, projects: &[ProjectId]) -> Result<i64> {
        Ok(parts::table.filter(parts::project_id.eq_any(projects)).count().get_result(self).await?)
    }

    async fn part_count_desired(&mut self, project: ProjectId) -> Result<i64> {
        let desired = parts::project_id.eq(project).and(parts::desired.is_not_null());
        Ok(parts::table.filter(desired).count().get_result(self).await?)
    }

    async fn part_remove_all(&mut self, project: ProjectId, after: Option<i64>, at: Time) -> Result<()> {
        let remove = diesel::sql_query(REMOVE_PARTS)
            .bind::<Nullable<BigInt>, _>(after)
            .bind::<Timestamptz, _>(at)
            .bind::<Uuid, _>(project);
        Prepared(remove).execute(self).await?;
        Ok(())
    }

    async fn part_delete(&mut self, project: ProjectId, part: &str) -> Result<bool> {
        Ok(diesel::delete(parts::table.find((project, part))).execute(self).await? == 1)
    }

    async fn desired_since(&mut self, node: NodeId, since: i64) -> Result<Option<StoredState>> {
        let rows = nodes::table
            .left_join(parts::table.on(parts::node_id.eq(nodes::id.nullable()).and(parts::revision.gt(since))))
            .filter(nodes::id.eq(node))
            .order(parts::revision)
            .limit(i64::from(MAX_PARTS) + 1)
            .select((nodes::revision, nodes::batch, Option::<PartRow>::as_select()))
            .load::<(i64, i64, Option<PartRow>)>(self)
            .await?;
        let &[(revision, batch, _), ..] = rows.as_slice() else {
            return Ok(None);
        };
        let mut parts: Vec<Change> = rows.into_iter().filter_map(|(_, _, row)| row).map(Change::from).collect();
        let max = usize::from(MAX_PARTS);
        let has_more = parts.len() > max;
        parts.truncate(max);
        Ok(Some(StoredState { revision, batch, parts, has_more }))
    }

    async fn bundle_is_placed(&mut self, node: NodeId, bundle: Digest) -> Result<bool> {
        let find = diesel::sql_query(FIND_SITE_WITH_BUNDLE).bind::<Uuid, _>(node).bind::<Text, _>(bundle.to_string());
        Ok(Prepared(find).execute(self).await? > 0)
    }
}

impl From<PartRow> for Change {
    fn from(row: PartRow) -> Self {
        let PartRow { project_id, revision, part, desired } = row;
        Self { project: project_id.to_string(), revision, part, desired }
    }
}

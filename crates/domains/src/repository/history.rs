//! The history of domains.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{DomainId, Time, UserId};
use serde_json::Value;
use store::{Connection, Result, any_of};
use uuid::Uuid;

use crate::model::DomainChange;
use crate::schema::history;

/// A change to record.
#[derive(Debug, Clone, PartialEq, Insertable)]
#[diesel(table_name = history)]
pub struct NewDomainChange<'a> {
    pub id: Uuid,
    #[diesel(column_name = domain_id)]
    pub domain: DomainId,
    pub event: &'a str,
    #[diesel(column_name = actor_id)]
    pub actor: Option<UserId>,
    pub data: &'a Value,
    pub created_at: Time,
}

/// The history of domains on a [`store::Connection`].
pub trait HistoryRepository {
    /// Records a change.
    async fn history_append(&mut self, change: &NewDomainChange<'_>) -> Result<()>;

    /// Returns the data of the first change with this event after a time.
    async fn history_first_after(&mut self, domain: DomainId, event: &str, after: Time) -> Result<Option<Value>>;

    /// Returns the last changes of a domain, newest first.
    async fn history_recent(&mut self, domain: DomainId, limit: i64) -> Result<Vec<DomainChange>>;
}

impl HistoryRepository for Connection {
    async fn history_append(&mut self, change: &NewDomainChange<'_>) -> Result<()> {
        diesel::insert_into(history::table).values(change).execute(self).await?;
        Ok(())
    }

    async fn history_first_after(&mut self, domain: DomainId, event: &str, after: Time) -> Result<Option<Value>> {
        let later = history::domain_id.eq(domain).and(history::event.eq(event)).and(history::created_at.gt(after));
        let first = history::table.filter(later).order(history::id).select(history::data);
        Ok(first.first(self).await.optional()?)
    }

    async fn history_recent(&mut self, domain: DomainId, limit: i64) -> Result<Vec<DomainChange>> {
        let recent = history::table
            .filter(history::domain_id.eq_any(any_of(domain)))
            .order((history::domain_id.desc(), history::id.desc()))
            .limit(limit)
            .select((history::created_at, history::event, history::actor_id, history::data));
        let rows: Vec<(Time, String, Option<UserId>, Value)> = recent.load(self).await?;
        Ok(rows.into_iter().map(|(at, event, actor, data)| DomainChange { at, event, actor, data }).collect())
    }
}

//! Orders in progress.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::seal::Sealed;
use kernel::{OrgId, Plan, Time, UserId};
use store::{Connection, Result};
use uuid::Uuid;

use crate::model::Challenge;
use crate::schema::{orders, org_plans};

/// An order in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderRecord {
    pub id: Uuid,
    pub name: String,
    /// The organization whose zone contains the TXT record of DNS-01.
    pub org: OrgId,
    /// The directory of the authority.
    pub directory: String,
    /// The URL of the order at the authority.
    pub url: String,
    /// The published challenge. `None` if the authority requires none.
    pub published: Option<PublishedChallenge>,
    /// The private key of the certificate. `None` before the first request to issue.
    pub key: Option<Sealed>,
    pub created_at: Time,
}

/// A published challenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedChallenge {
    pub challenge: Challenge,
    /// The path of HTTP-01.
    pub token: String,
    /// The TXT record of DNS-01, or the key authorization of HTTP-01.
    pub response: String,
    /// The zone that contains the TXT record of DNS-01.
    pub zone: Option<String>,
}

/// Orders on a [`store::Connection`].
pub trait OrderRepository {
    /// Inserts an order. The name has no other order.
    async fn order_insert(&mut self, order: &OrderRecord) -> Result<()>;

    /// Returns the order of a name.
    async fn order_find(&mut self, name: &str) -> Result<Option<OrderRecord>>;

    /// Stores the private key of the certificate.
    async fn order_set_key(&mut self, id: Uuid, key: &Sealed) -> Result<()>;

    /// Deletes the order of a name, and returns it.
    async fn order_delete(&mut self, name: &str) -> Result<Option<OrderRecord>>;

    /// Returns the response of HTTP-01 to a request for this token at this host.
    async fn order_find_response(&mut self, host: &str, token: &str) -> Result<Option<String>>;

    /// Returns the creator of an organization with the free plan. `None` also if the creator was deleted.
    async fn free_org_creator(&mut self, org: OrgId) -> Result<Option<UserId>>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = orders)]
struct OrderRow {
    id: Uuid,
    name: String,
    org_id: OrgId,
    directory: String,
    url: String,
    challenge: Option<Challenge>,
    token: Option<String>,
    response: Option<String>,
    zone: Option<String>,
    key_id: Option<String>,
    sealed: Option<Vec<u8>>,
    created_at: Time,
}

impl OrderRepository for Connection {
    async fn order_insert(&mut self, order: &OrderRecord) -> Result<()> {
        let published = order.published.as_ref();
        let row = (
            orders::id.eq(order.id),
            orders::name.eq(&order.name),
            orders::org_id.eq(order.org),
            orders::directory.eq(&order.directory),
            orders::url.eq(&order.url),
            orders::challenge.eq(published.map(|it| it.challenge)),
            orders::token.eq(published.map(|it| &it.token)),
            orders::response.eq(published.map(|it| &it.response)),
            orders::zone.eq(published.and_then(|it| it.zone.as_ref())),
            orders::created_at.eq(order.created_at),
        );
        diesel::insert_into(orders::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn order_find(&mut self, name: &str) -> Result<Option<OrderRecord>> {
        let query = orders::table.filter(orders::name.eq(name)).select(OrderRow::as_select());
        let found: Option<OrderRow> = query.first(self).await.optional()?;
        Ok(found.map(OrderRecord::from))
    }

    async fn order_set_key(&mut self, id: Uuid, key: &Sealed) -> Result<()> {
        let change = (orders::key_id.eq(&key.key_id), orders::sealed.eq(&key.bytes));
        diesel::update(orders::table.find(id)).set(change).execute(self).await?;
        Ok(())
    }

    async fn order_delete(&mut self, name: &str) -> Result<Option<OrderRecord>> {
        let found = self.order_find(name).await?;
        diesel::delete(orders::table.filter(orders::name.eq(name))).execute(self).await?;
        Ok(found)
    }

    async fn order_find_response(&mut self, host: &str, token: &str) -> Result<Option<String>> {
        let order = orders::name.eq(host).and(orders::challenge.eq(Challenge::Http01)).and(orders::token.eq(token));
        let query = orders::table.filter(order).select(orders::response);
        let found: Option<Option<String>> = query.first(self).await.optional()?;
        Ok(found.flatten())
    }

    async fn free_org_creator(&mut self, org: OrgId) -> Result<Option<UserId>> {
        let free = org_plans::table.filter(org_plans::id.eq(org).and(org_plans::plan.eq(Plan::Free)));
        let found: Option<Option<UserId>> = free.select(org_plans::created_by).first(self).await.optional()?;
        Ok(found.flatten())
    }
}

impl From<OrderRow> for OrderRecord {
    fn from(row: OrderRow) -> Self {
        let OrderRow { id, name, org_id, directory, url, challenge, token, response, zone, key_id, sealed, created_at } =
            row;
        let published = challenge.zip(token).zip(response).map(|((challenge, token), response)| PublishedChallenge {
            challenge,
            token,
            response,
            zone,
        });
        let key = key_id.zip(sealed).map(|(key_id, bytes)| Sealed { key_id, bytes });
        Self { id, name, org: org_id, directory, url, published, key, created_at }
    }
}

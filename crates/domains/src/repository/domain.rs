//! Domains and their contacts.

use diesel::prelude::*;
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use kernel::seal::Sealed;
use kernel::{DomainId, OrgId, Paging, Time};
use store::{Connection, Prepared, Result, newest_first};

use crate::model::DomainState;
use crate::schema::{contacts, domains};

/// A domain.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = domains)]
pub struct DomainRecord {
    pub id: DomainId,
    #[diesel(column_name = org_id)]
    pub org: OrgId,
    pub name: String,
    pub state: DomainState,
    /// The state before the purchase that is in progress; `None` for a new domain.
    pub previous_state: Option<DomainState>,
    pub registered_at: Option<Time>,
    pub expires_at: Option<Time>,
    /// `None` before the registration, and if the result of a change is unknown.
    pub locked: Option<bool>,
    /// The end of the registry's transfer lock.
    pub transferable_at: Option<Time>,
    /// The price of each further year, in US cents.
    pub renewal_cents: Option<i64>,
    pub nameservers: Vec<String>,
    pub auto_renew: bool,
    /// The revision. Every change increments it.
    pub revision: i64,
    /// The time of the next read at the registrar.
    pub next_sync_at: Option<Time>,
    /// The last notification about the expiry: the number of days before the expiry, and the expiry itself.
    pub notified_days: Option<i32>,
    pub notified_expiry: Option<Time>,
    pub created_at: Time,
}

/// Domains on a [`store::Connection`].
pub trait DomainRepository {
    /// Inserts a domain. Returns false if the organization already has the name, or if another organization has it and
    /// has not transferred it away.
    async fn domain_insert(&mut self, domain: &DomainRecord) -> Result<bool>;

    /// Returns a domain of an organization.
    async fn domain_find(&mut self, org: OrgId, name: &str) -> Result<Option<DomainRecord>>;

    /// Returns a domain of an organization, locked until the transaction ends.
    async fn domain_lock(&mut self, org: OrgId, name: &str) -> Result<Option<DomainRecord>>;

    /// Returns a domain, locked until the transaction ends.
    async fn domain_lock_by_id(&mut self, domain: DomainId) -> Result<Option<DomainRecord>>;

    /// Returns a domain.
    async fn domain_find_by_id(&mut self, domain: DomainId) -> Result<Option<DomainRecord>>;

    /// Returns those of these names that organizations have, each with its organization. Omits names that were
    /// transferred away.
    async fn domains_live(&mut self, names: &[String]) -> Result<Vec<(String, OrgId)>>;

    /// Returns the domains of an organization, newest first.
    async fn domain_list(&mut self, org: OrgId, paging: &Paging<DomainId>) -> Result<Vec<DomainRecord>>;

    /// Stores a changed domain with a new revision. Returns false if the domain no longer exists, or if its stored
    /// revision differs from that of `domain`.
    async fn domain_update(&mut self, domain: &DomainRecord) -> Result<bool>;

    /// Deletes a domain, with its contact and its history.
    async fn domain_delete(&mut self, domain: DomainId) -> Result<()>;

    /// Returns domains that expire before this time, in the order of their expiry.
    async fn domains_expiring(&mut self, before: Time, limit: i64) -> Result<Vec<DomainRecord>>;

    /// Returns active domains whose due notification was not sent yet. A notification is due for the smallest number in
    /// `days` within which the domain expires.
    async fn domains_to_notify(&mut self, now: Time, days: &[i32], limit: i64) -> Result<Vec<DomainId>>;

    /// Returns whether the registrar manages the domain of this name for the organization, or will manage it when its
    /// purchase completes.
    async fn domain_is_registered(&mut self, org: OrgId, name: &str) -> Result<bool>;

    /// Deletes the organization's domain of this name if it is imported. If a purchase of the imported domain is in
    /// progress, deletes it when the purchase is refused.
    async fn domain_release_imported(&mut self, org: OrgId, name: &str) -> Result<()>;

    /// Claims domains whose next read at the registrar is due. They are due again at `until`.
    async fn domains_claim_sync(&mut self, now: Time, until: Time, limit: i64) -> Result<Vec<DomainRecord>>;

    /// Stores the contact of a domain.
    async fn contact_put(&mut self, domain: DomainId, contact: Sealed) -> Result<()>;

    /// Returns the contact of a domain.
    async fn contact_find(&mut self, domain: DomainId) -> Result<Option<Sealed>>;
}

#[derive(QueryableByName)]
struct IdRow {
    #[diesel(sql_type = diesel::sql_types::Uuid)]
    id: DomainId,
}

const TO_NOTIFY: &str = "\
    SELECT d.id FROM domains.domains d, \
        LATERAL (SELECT min(days) AS days FROM unnest($2) days WHERE d.expires_at <= $1 + make_interval(days => days)) due \
    WHERE d.state = 'active' AND d.expires_at > $1 AND due.days IS NOT NULL \
        AND (d.notified_expiry IS DISTINCT FROM d.expires_at OR d.notified_days > due.days) \
    ORDER BY d.expires_at, d.id LIMIT $3";

const CLAIM_SYNC: &str = "\
    UPDATE domains.domains SET next_sync_at = $2 WHERE id = ANY (ARRAY( \
        SELECT id FROM domains.domains WHERE next_sync_at <= $1 ORDER BY next_sync_at LIMIT $3 FOR UPDATE SKIP LOCKED)) \
    RETURNING id";

impl DomainRepository for Connection {
    async fn domain_insert(&mut self, domain: &DomainRecord) -> Result<bool> {
        let insert = diesel::insert_into(domains::table).values(domain).on_conflict_do_nothing();
        Ok(insert.execute(self).await? == 1)
    }

    async fn domain_find(&mut self, org: OrgId, name: &str) -> Result<Option<DomainRecord>> {
        let query = of_org(org, name).select(DomainRecord::as_select());
        Ok(query.first(self).await.optional()?)
    }

    async fn domain_lock(&mut self, org: OrgId, name: &str) -> Result<Option<DomainRecord>> {
        let query = of_org(org, name).select(DomainRecord::as_select());
        Ok(query.for_update().first(self).await.optional()?)
    }

    async fn domain_lock_by_id(&mut self, domain: DomainId) -> Result<Option<DomainRecord>> {
        let query = domains::table.find(domain).select(DomainRecord::as_select());
        Ok(query.for_update().first(self).await.optional()?)
    }

    async fn domain_find_by_id(&mut self, domain: DomainId) -> Result<Option<DomainRecord>> {
        let query = domains::table.find(domain).select(DomainRecord::as_select());
        Ok(query.first(self).await.optional()?)
    }

    async fn domains_live(&mut self, names: &[String]) -> Result<Vec<(String, OrgId)>> {
        let live = domains::name.eq_any(names).and(domains::state.ne(DomainState::TransferredOut));
        Ok(domains::table.filter(live).select((domains::name, domains::org_id)).load(self).await?)
    }

    async fn domain_list(&mut self, org: OrgId, paging: &Paging<DomainId>) -> Result<Vec<DomainRecord>> {
        let all = domains::table.select(DomainRecord::as_select());
        let page = newest_first!(all, domains::org_id = org, domains::id, paging);
        Ok(page.load(self).await?)
    }

    async fn domain_update(&mut self, domain: &DomainRecord) -> Result<bool> {
        let known = domains::id.eq(domain.id).and(domains::revision.eq(domain.revision));
        let change = (
            domains::state.eq(domain.state),
            domains::previous_state.eq(domain.previous_state),
            domains::registered_at.eq(domain.registered_at),
            domains::expires_at.eq(domain.expires_at),
            domains::locked.eq(domain.locked),
            domains::transferable_at.eq(domain.transferable_at),
            domains::renewal_cents.eq(domain.renewal_cents),
            domains::nameservers.eq(&domain.nameservers),
            domains::auto_renew.eq(domain.auto_renew),
            domains::revision.eq(domain.revision + 1),
            domains::next_sync_at.eq(domain.next_sync_at),
            domains::notified_days.eq(domain.notified_days),
            domains::notified_expiry.eq(domain.notified_expiry),
        );
        let update = diesel::update(domains::table.filter(known)).set(change);
        Ok(Prepared(update).execute(self).await? == 1)
    }

    async fn domain_delete(&mut self, domain: DomainId) -> Result<()> {
        diesel::delete(domains::table.find(domain)).execute(self).await?;
        Ok(())
    }

    async fn domains_expiring(&mut self, before: Time, limit: i64) -> Result<Vec<DomainRecord>> {
        let expiring = domains::state.eq(DomainState::Active).and(domains::expires_at.lt(before).assume_not_null());
        let query = domains::table.filter(expiring).order((domains::expires_at, domains::id)).limit(limit);
        Ok(query.select(DomainRecord::as_select()).load(self).await?)
    }

    async fn domains_to_notify(&mut self, now: Time, days: &[i32], limit: i64) -> Result<Vec<DomainId>> {
        use diesel::sql_types::{Array, BigInt, Integer, Timestamptz};
        let query = diesel::sql_query(TO_NOTIFY);
        let query = query.bind::<Timestamptz, _>(now).bind::<Array<Integer>, _>(days).bind::<BigInt, _>(limit);
        let found: Vec<IdRow> = Prepared(query).load(self).await?;
        Ok(found.into_iter().map(|row| row.id).collect())
    }

    async fn domain_is_registered(&mut self, org: OrgId, name: &str) -> Result<bool> {
        let states = [DomainState::Registering, DomainState::Active, DomainState::Expired];
        let registered = of_org(org, name).filter(domains::state.eq_any(states));
        Ok(diesel::select(diesel::dsl::exists(registered)).get_result(self).await?)
    }

    async fn domain_release_imported(&mut self, org: OrgId, name: &str) -> Result<()> {
        // Update first: if the purchase is refused at the same time, the update waits for it and finds no row. Then the
        // deletion, whose snapshot is newer, finds the imported domain. In the opposite order, neither would find it.
        let purchased = of_org(org, name).filter(domains::previous_state.eq(DomainState::External));
        let change = (domains::previous_state.eq(None::<DomainState>), domains::revision.eq(domains::revision + 1));
        diesel::update(purchased).set(change).execute(self).await?;
        let imported = of_org(org, name).filter(domains::state.eq(DomainState::External));
        diesel::delete(imported).execute(self).await?;
        Ok(())
    }

    async fn domains_claim_sync(&mut self, now: Time, until: Time, limit: i64) -> Result<Vec<DomainRecord>> {
        use diesel::sql_types::{BigInt, Timestamptz};
        let claim = diesel::sql_query(CLAIM_SYNC);
        let claim = claim.bind::<Timestamptz, _>(now).bind::<Timestamptz, _>(until).bind::<BigInt, _>(limit);
        let claimed: Vec<IdRow> = Prepared(claim).load(self).await?;
        let ids: Vec<DomainId> = claimed.into_iter().map(|claimed| claimed.id).collect();
        let query = domains::table.filter(domains::id.eq_any(ids)).select(DomainRecord::as_select());
        Ok(query.load(self).await?)
    }

    async fn contact_put(&mut self, domain: DomainId, contact: Sealed) -> Result<()> {
        let Sealed { key_id, bytes } = contact;
        let row = (contacts::domain_id.eq(domain), contacts::key_id.eq(key_id), contacts::sealed.eq(bytes));
        let upsert = diesel::insert_into(contacts::table)
            .values(row)
            .on_conflict(contacts::domain_id)
            .do_update()
            .set((contacts::key_id.eq(excluded(contacts::key_id)), contacts::sealed.eq(excluded(contacts::sealed))));
        Prepared(upsert).execute(self).await?;
        Ok(())
    }

    async fn contact_find(&mut self, domain: DomainId) -> Result<Option<Sealed>> {
        let query = contacts::table.find(domain).select((contacts::key_id, contacts::sealed));
        let found: Option<(String, Vec<u8>)> = query.first(self).await.optional()?;
        Ok(found.map(|(key_id, bytes)| Sealed { key_id, bytes }))
    }
}

#[diesel::dsl::auto_type(no_type_alias)]
fn of_org<'a>(org: OrgId, name: &'a str) -> _ {
    domains::table.filter(domains::org_id.eq(org)).filter(domains::name.eq(name))
}

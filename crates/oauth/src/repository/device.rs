//! Device codes (RFC 8628).

use diesel::dsl::{count_star, min};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{ClientId, Digest, GrantId, Scope, ScopeSet, Time, TokenHash, UserId};
use store::{Connection, Prepared, Result, purge_batch};

use crate::model::DeviceState;
use crate::schema::{clients, device_codes};

/// The request of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceRecord {
    pub device_code_hash: TokenHash,
    /// The user code: eight letters, without the hyphen.
    pub user_code: String,
    pub client: ClientId,
    /// The hash of the client, and for a public client also of the address. Undecided requests with the same value share
    /// a limit. `None` for a decided request.
    pub limit_key: Option<Digest>,
    /// The hash of the network of the address. Undecided requests of public clients with the same value share a limit.
    /// `None` for a decided request, and for a confidential client.
    pub network_key: Option<Digest>,
    pub scopes: ScopeSet,
    pub state: DeviceState,
    /// The user who decided.
    pub user: Option<UserId>,
    pub poll_interval: i32,
    pub last_polled_at: Option<Time>,
    pub created_at: Time,
    pub expires_at: Time,
    /// The grant that the exchange created. `None` before the exchange.
    pub grant: Option<GrantId>,
}

/// The number of requests to which a limit applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceCount {
    pub number: i64,
    /// The time at which the first of them expires.
    pub first_expiry: Option<Time>,
}

/// Device codes on a [`store::Connection`].
pub trait DeviceRepository {
    /// Counts the undecided requests that share the limit of a client, and for a public client of an address.
    async fn device_count_undecided(&mut self, limit_key: Digest, now: Time) -> Result<DeviceCount>;

    /// Counts the undecided requests of public clients that share the limit of a network.
    async fn device_count_network(&mut self, network_key: Digest, now: Time) -> Result<DeviceCount>;

    /// Counts the requests of all clients that have no grant yet and are not expired.
    async fn device_count_open(&mut self, now: Time) -> Result<DeviceCount>;

    /// Inserts a pending request. Returns false if another request has the user code.
    async fn device_insert(&mut self, device: &DeviceRecord) -> Result<bool>;

    /// Returns a request by its device code, even if it is used or expired.
    async fn device_find(&mut self, device_code: TokenHash) -> Result<Option<DeviceRecord>>;

    /// Returns an undecided request by its user code, with the name of its client.
    async fn device_find_pending(&mut self, user_code: &str, now: Time) -> Result<Option<(DeviceRecord, String)>>;

    /// Stores the time of a poll, and the interval for the next polls.
    async fn device_poll(&mut self, device_code: TokenHash, now: Time, interval: i32) -> Result<()>;

    /// Decides an undecided request. Returns false if there is no such request.
    async fn device_decide(&mut self, user_code: &str, user: UserId, state: DeviceState, now: Time) -> Result<bool>;

    /// Marks an approved request as used. Returns false if it is used, expired or not approved.
    async fn device_use(&mut self, device_code: TokenHash, grant: GrantId, now: Time) -> Result<bool>;

    /// Deletes a batch of requests that expired before this time without an exchange, and returns their number.
    async fn device_purge(&mut self, before: Time) -> Result<usize>;
}

const PURGE: &str = "DELETE FROM oauth.device_codes WHERE device_code_hash IN ( \
    SELECT device_code_hash FROM oauth.device_codes WHERE grant_id IS NULL AND expires_at <= $1 LIMIT $2 \
    FOR UPDATE SKIP LOCKED)";

#[derive(Queryable, Selectable)]
#[diesel(table_name = device_codes)]
struct DeviceRow {
    device_code_hash: TokenHash,
    user_code: String,
    client_id: ClientId,
    limit_key: Option<Digest>,
    network_key: Option<Digest>,
    scopes: Vec<Scope>,
    state: DeviceState,
    user_id: Option<UserId>,
    poll_interval: i32,
    last_polled_at: Option<Time>,
    created_at: Time,
    expires_at: Time,
    grant_id: Option<GrantId>,
}

impl DeviceRepository for Connection {
    async fn device_count_undecided(&mut self, limit_key: Digest, now: Time) -> Result<DeviceCount> {
        count(self, device_codes::table.filter(device_codes::limit_key.eq(limit_key)).into_boxed(), now).await
    }

    async fn device_count_network(&mut self, network_key: Digest, now: Time) -> Result<DeviceCount> {
        count(self, device_codes::table.filter(device_codes::network_key.eq(network_key)).into_boxed(), now).await
    }

    async fn device_count_open(&mut self, now: Time) -> Result<DeviceCount> {
        count(self, device_codes::table.filter(device_codes::grant_id.is_null()).into_boxed(), now).await
    }

    async fn device_insert(&mut self, device: &DeviceRecord) -> Result<bool> {
        let row = (
            device_codes::device_code_hash.eq(device.device_code_hash),
            device_codes::user_code.eq(&device.user_code),
            device_codes::client_id.eq(device.client),
            device_codes::limit_key.eq(device.limit_key),
            device_codes::network_key.eq(device.network_key),
            device_codes::scopes.eq(device.scopes.iter().collect::<Vec<_>>()),
            device_codes::state.eq(device.state),
            device_codes::poll_interval.eq(device.poll_interval),
            device_codes::created_at.eq(device.created_at),
            device_codes::expires_at.eq(device.expires_at),
        );
        let insert = diesel::insert_into(device_codes::table).values(row);
        Ok(Prepared(insert.on_conflict(device_codes::user_code).do_nothing()).execute(self).await? == 1)
    }

    async fn device_find(&mut self, device_code: TokenHash) -> Result<Option<DeviceRecord>> {
        let query = device_codes::table.find(device_code).select(DeviceRow::as_select());
        Ok(query.first(self).await.optional()?.map(DeviceRecord::from))
    }

    async fn device_find_pending(&mut self, user_code: &str, now: Time) -> Result<Option<(DeviceRecord, String)>> {
        let pending = device_codes::state.eq(DeviceState::Pending).and(device_codes::expires_at.gt(now));
        let query = device_codes::table
            .inner_join(clients::table)
            .filter(device_codes::user_code.eq(user_code).and(pending))
            .select((DeviceRow::as_select(), clients::name));
        let found: Option<(DeviceRow, String)> = query.first(self).await.optional()?;
        Ok(found.map(|(row, name)| (row.into(), name)))
    }

    async fn device_poll(&mut self, device_code: TokenHash, now: Time, interval: i32) -> Result<()> {
        let update = diesel::update(device_codes::table.find(device_code))
            .set((device_codes::last_polled_at.eq(now), device_codes::poll_interval.eq(interval)));
        Prepared(update).execute(self).await?;
        Ok(())
    }

    async fn device_decide(&mut self, user_code: &str, user: UserId, state: DeviceState, now: Time) -> Result<bool> {
        let pending = device_codes::state.eq(DeviceState::Pending).and(device_codes::expires_at.gt(now));
        let rows = device_codes::table.filter(device_codes::user_code.eq(user_code).and(pending));
        let update = diesel::update(rows).set((
            device_codes::state.eq(state),
            device_codes::user_id.eq(user),
            device_codes::limit_key.eq(None::<Digest>),
            device_codes::network_key.eq(None::<Digest>),
        ));
        Ok(Prepared(update).execute(self).await? == 1)
    }

    async fn device_use(&mut self, device_code: TokenHash, grant: GrantId, now: Time) -> Result<bool> {
        let unused = device_codes::grant_id.is_null().and(device_codes::expires_at.gt(now));
        let rows = device_codes::table.find(device_code).filter(unused);
        let update = diesel::update(rows.filter(device_codes::state.eq(DeviceState::Approved)))
            .set(device_codes::grant_id.eq(grant));
        Ok(Prepared(update).execute(self).await? == 1)
    }

    async fn device_purge(&mut self, before: Time) -> Result<usize> {
        purge_batch(self, PURGE, before).await
    }
}

/// Counts those of the requests that are not expired.
async fn count(
    connection: &mut Connection,
    requests: device_codes::BoxedQuery<'_, Pg>,
    now: Time,
) -> Result<DeviceCount> {
    let unexpired = requests.filter(device_codes::expires_at.gt(now));
    let query = unexpired.select((count_star(), min(device_codes::expires_at)));
    let (number, first_expiry): (i64, Option<Time>) = query.get_result(connection).await?;
    Ok(DeviceCount { number, first_expiry })
}

impl From<DeviceRow> for DeviceRecord {
    fn from(row: DeviceRow) -> Self {
        let DeviceRow { device_code_hash, user_code, client_id: client, limit_key, network_key, .. } = row;
        let DeviceRow { scopes, state, user_id: user, poll_interval, last_polled_at, .. } = row;
        let DeviceRow { created_at, expires_at, grant_id: grant, .. } = row;
        let scopes = scopes.into_iter().collect();
        Self {
            device_code_hash,
            user_code,
            client,
            limit_key,
            network_key,
            scopes,
            state,
            user,
            poll_interval,
            last_polled_at,
            created_at,
            expires_at,
            grant,
        }
    }
}

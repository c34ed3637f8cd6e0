//! Looks at the signers of zones.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Timestamptz};
use diesel_async::RunQueryDsl;
use kernel::{OrgId, Time, ZoneId};
use store::{Cached, Connection, Error, Result};

use super::column::{json, read, serial};
use crate::ZoneName;
use crate::model::{DnssecState, Ds, SignerView};
use crate::schema::zones;

/// A zone whose signer is due for a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    pub id: ZoneId,
    pub org: OrgId,
    pub name: ZoneName,
    pub serial: u32,
    pub dnssec: DnssecState,
    pub ds: Vec<Ds>,
    pub before: Option<SignerView>,
    /// Until when nobody else looks: whoever wants another look meanwhile has moved it.
    pub lease: Time,
}

/// Looks at signers on a [`store::Connection`].
pub trait LookRepository {
    /// Takes zones whose signer is due for a look, which is due again at `lease`.
    async fn looks_due(&mut self, now: Time, lease: Time, most: i64) -> Result<Vec<Looked>>;

    /// Notes what was seen at the signer, and when to look again, unless somebody wants that sooner.
    async fn look_note(&mut self, looked: &Looked, view: &SignerView, look_at: Option<Time>) -> Result<()>;
}

#[derive(QueryableByName)]
#[diesel(table_name = zones)]
struct LookedRow {
    id: ZoneId,
    org_id: Option<OrgId>,
    name: String,
    serial: i64,
    dnssec_state: DnssecState,
    ds: serde_json::Value,
    signer: Option<serde_json::Value>,
}

/// `ARRAY(…)`, so that the limit is taken once.
const LOOKS_DUE: &str = "\
    UPDATE dns.zones SET look_at = $2 WHERE id = ANY (ARRAY( \
        SELECT id FROM dns.zones WHERE look_at <= $1 ORDER BY look_at LIMIT $3 FOR UPDATE SKIP LOCKED)) \
    RETURNING id, org_id, name, serial, dnssec_state, ds, signer";

impl LookRepository for Connection {
    async fn looks_due(&mut self, now: Time, lease: Time, most: i64) -> Result<Vec<Looked>> {
        let take = diesel::sql_query(LOOKS_DUE);
        let take = take.bind::<Timestamptz, _>(now).bind::<Timestamptz, _>(lease).bind::<BigInt, _>(most);
        let rows: Vec<LookedRow> = Cached(take).load(self).await?;
        rows.into_iter().map(|row| row.looked(lease)).collect()
    }

    async fn look_note(&mut self, looked: &Looked, view: &SignerView, look_at: Option<Time>) -> Result<()> {
        let zone = zones::table.find(looked.id);
        Cached(diesel::update(zone).set(zones::signer.eq(json(view)?))).execute(self).await?;
        let leased = zone.filter(zones::look_at.eq(looked.lease));
        Cached(diesel::update(leased).set(zones::look_at.eq(look_at))).execute(self).await?;
        Ok(())
    }
}

impl LookedRow {
    fn looked(self, lease: Time) -> Result<Looked> {
        Ok(Looked {
            id: self.id,
            org: self.org_id.ok_or_else(|| Error::inconsistent("the catalog has no signer"))?,
            name: ZoneName::stored(self.name),
            serial: serial(self.serial)?,
            dnssec: self.dnssec_state,
            ds: read(self.ds)?,
            before: self.signer.map(read).transpose()?,
            lease,
        })
    }
}

//! Signer checks of zones.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Timestamptz};
use diesel_async::RunQueryDsl;
use kernel::{OrgId, Time, ZoneId};
use store::{Connection, Error, Prepared, Result};

use super::column::{from_json, serial, to_json};
use crate::ZoneName;
use crate::model::{DnssecState, Ds, SignerView};
use crate::schema::zones;

/// A zone that is due for a signer check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignerCheck {
    pub id: ZoneId,
    pub org: OrgId,
    pub name: ZoneName,
    pub serial: u32,
    pub dnssec: DnssecState,
    pub ds: Vec<Ds>,
    /// See [`ZoneRecord::cds`](super::ZoneRecord::cds).
    pub cds: Vec<Ds>,
    /// See [`ZoneRecord::is_unsigning`](super::ZoneRecord::is_unsigning).
    pub is_unsigning: bool,
    pub last_view: Option<SignerView>,
    /// The end of the lease on this check. A writer that requests an earlier check overwrites the column.
    pub leased_until: Time,
}

/// Signer checks on a [`store::Connection`].
pub trait SignerCheckRepository {
    /// Leases zones that are due for a signer check. They become due again at `leased_until`.
    async fn signer_checks_claim(&mut self, now: Time, leased_until: Time, limit: i64) -> Result<Vec<SignerCheck>>;

    /// Records the observed state. Also sets the time of the next check, unless another writer has changed it.
    async fn signer_check_record(
        &mut self,
        check: &SignerCheck,
        view: &SignerView,
        signer_check_at: Option<Time>,
    ) -> Result<()>;
}

#[derive(QueryableByName)]
#[diesel(table_name = zones)]
struct SignerCheckRow {
    id: ZoneId,
    org_id: Option<OrgId>,
    name: String,
    serial: i64,
    dnssec_state: DnssecState,
    ds: serde_json::Value,
    cds: serde_json::Value,
    is_unsigning: bool,
    signer: Option<serde_json::Value>,
}

/// Uses `ARRAY(…)`, so that Postgres evaluates the limit once.
const CLAIM_DUE: &str = "\
    UPDATE dns.zones SET signer_check_at = $2 WHERE id = ANY (ARRAY( \
        SELECT id FROM dns.zones WHERE signer_check_at <= $1 ORDER BY signer_check_at LIMIT $3 FOR UPDATE SKIP LOCKED)) \
    RETURNING id, org_id, name, serial, dnssec_state, ds, cds, is_unsigning, signer";

impl SignerCheckRepository for Connection {
    async fn signer_checks_claim(&mut self, now: Time, leased_until: Time, limit: i64) -> Result<Vec<SignerCheck>> {
        let claim = diesel::sql_query(CLAIM_DUE);
        let claim = claim.bind::<Timestamptz, _>(now).bind::<Timestamptz, _>(leased_until).bind::<BigInt, _>(limit);
        let rows: Vec<SignerCheckRow> = Prepared(claim).load(self).await?;
        rows.into_iter().map(|row| row.into_check(leased_until)).collect()
    }

    async fn signer_check_record(
        &mut self,
        check: &SignerCheck,
        view: &SignerView,
        signer_check_at: Option<Time>,
    ) -> Result<()> {
        let zone = zones::table.find(check.id);
        Prepared(diesel::update(zone).set(zones::signer.eq(to_json(view)?))).execute(self).await?;
        let leased = zone.filter(zones::signer_check_at.eq(check.leased_until));
        Prepared(diesel::update(leased).set(zones::signer_check_at.eq(signer_check_at))).execute(self).await?;
        Ok(())
    }
}

impl SignerCheckRow {
    fn into_check(self, leased_until: Time) -> Result<SignerCheck> {
        Ok(SignerCheck {
            id: self.id,
            org: self.org_id.ok_or_else(|| Error::inconsistent("the catalog has no signer"))?,
            name: ZoneName::new_unchecked(self.name),
            serial: serial(self.serial)?,
            dnssec: self.dnssec_state,
            ds: from_json(self.ds)?,
            cds: from_json(self.cds)?,
            is_unsigning: self.is_unsigning,
            last_view: self.signer.map(from_json).transpose()?,
            leased_until,
        })
    }
}

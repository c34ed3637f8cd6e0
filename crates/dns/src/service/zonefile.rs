//! Import of zone files. [`super::ZoneReader`] exports them.

mod comparison;

use kernel::OrgId;
use kernel::audit::{Actor, Event};
use store::{Connection, Outcome};

use self::comparison::Comparison;
use super::edit::{audit_data, plan_changes};
use super::read::PAGE;
use super::rrset::RrsetChanges;
use super::{AtSerial, Dns, Precondition, Result, ZoneReader, load_zone};
use crate::error::DnsError;
use crate::repository::{ContentRepository as _, ZoneRecord};
use crate::zonefile::{self, LineError, Zonefile};

/// The result of a zone file import.
#[derive(Debug)]
pub enum ImportResult {
    /// The zone after the import.
    Applied(Box<ZoneReader>),
    /// The changes that the import would make.
    DryRun(AtSerial<RrsetChanges>),
}

impl Dns {
    /// Replaces the content of a zone with that of a file. Managed rrsets stay. The import ignores the SOA and apex NS
    /// records of the file, and rejects a file that changes other managed rrsets.
    ///
    /// # Errors
    /// Returns [`DnsError::InvalidLines`], [`DnsError::ZoneBytesLimit`], [`DnsError::ZoneNotFound`],
    /// [`DnsError::SerialMismatch`] or [`DnsError::TooManyReads`].
    pub async fn zonefile_put(
        &self,
        actor: &Actor,
        (org, name): (OrgId, &str),
        text: String,
        dry_run: bool,
        precondition: &Precondition,
    ) -> Result<ImportResult> {
        self.hosting()?;
        let origin = load_zone(&mut *self.store.connection().await?, org, name).await?.name;
        // Parse on another thread, because a large file would block a thread that serves requests.
        let max_size = self.max_file_size();
        let read = tokio::task::spawn_blocking(move || zonefile::read_within(&origin, &text, max_size)).await;
        let file = read.map_err(store::Error::inconsistent)?.map_err(DnsError::InvalidLines)?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let zone = self.lock_zone(tx, org, name, precondition).await?;
                let comparison = compare(tx, &zone, file).await?;
                let (lines, changes, stored) = comparison.into_changes()?;
                let plan = plan_changes(&zone, stored.into_iter(), changes.into_iter().enumerate(), None);
                if !plan.rejected.is_empty() {
                    let line_error = |(index, error): &(usize, DnsError)| LineError {
                        line: lines.get(*index).copied().unwrap_or_default(),
                        message: error.to_string(),
                    };
                    return Err(DnsError::InvalidLines(plan.rejected.iter().map(line_error).collect()));
                }
                if dry_run {
                    // Check the size here, because a dry run does not call `apply_edits`, which checks it otherwise.
                    self.check_size(tx, &zone, &plan.edits).await?;
                    return Ok(Outcome::Unchanged(ImportResult::DryRun(RrsetChanges::at(&zone, plan.edits))));
                }
                let zone = self.apply_edits(tx, zone, &plan.edits).await?;
                let event = Event::in_org("dns.zone.import", org, zone.id, audit_data(&zone, &plan.edits));
                let applied = ImportResult::Applied(self.open_zone(tx, org, zone).await?.into());
                Ok(if plan.edits.is_empty() { Outcome::Unchanged(applied) } else { Outcome::Changed(applied, event) })
            })
            .await
    }
}

/// Compares a file with a locked zone, page by page.
async fn compare(tx: &mut Connection, zone: &ZoneRecord, file: Zonefile) -> Result<Comparison> {
    let (mut comparison, mut after) = (Comparison::new(file), None);
    loop {
        let page = tx.rrset_page((zone.id, zone.rrset_count), after.as_ref(), PAGE).await?;
        page.sets.into_iter().for_each(|stored| comparison.add(zone, stored));
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(comparison),
        }
    }
}

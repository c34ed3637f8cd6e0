//! The tables of the index, and the changes to them.
//!
//! The key of an object is its prefix, a zero byte and its key. Prefixes contain no zero byte, so the objects of one
//! prefix are adjacent, in the order of their keys.

use std::ops::Bound;

use redb::{ReadOnlyTable, ReadTransaction, ReadableTable, Table, TableDefinition, WriteTransaction};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::error::StorageError;
use super::super::grant::Grant;
use super::super::key::Key;
use super::super::object::Record;
use super::listing::{self, ListOptions, Page};
use super::rows::{MIN_BLOB_BYTES, PrefixRow};
use crate::random;

pub type WriteResult<T> = std::result::Result<T, redb::Error>;

type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// [`Record`]s by prefix and key.
const OBJECTS: Definition = TableDefinition::new("objects");
/// [`PrefixRow`]s by prefix.
const PREFIXES: Definition = TableDefinition::new("prefixes");
/// Blobs to delete, by prefix and blob id, with their sizes in bytes, at least [`MIN_BLOB_BYTES`], as big-endian `u64`.
const GARBAGE: Definition = TableDefinition::new("garbage");
/// The sums of the sizes in [`GARBAGE`] by prefix, as big-endian `u64`. Without a row, the sum is 0.
const UNDELETED: Definition = TableDefinition::new("undeleted");
/// The [`Identity`] of the index.
const IDENTITY: Definition = TableDefinition::new("identity");

/// The largest number of blobs in a batch of deletions.
const MAX_DELETIONS: usize = 100;
/// The largest number of blobs of one prefix in a batch.
const MAX_DELETIONS_PER_PREFIX: usize = 25;
/// The largest number of rows that one change removes from a prefix that is cleared. Each change delays all others.
const MAX_CLEARED: usize = 1000;

/// The tables in a read transaction.
pub struct ReadTables {
    objects: ReadOnlyTable<&'static [u8], &'static [u8]>,
    prefixes: ReadOnlyTable<&'static [u8], &'static [u8]>,
    garbage: ReadOnlyTable<&'static [u8], &'static [u8]>,
    undeleted: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

/// The tables in a write transaction.
pub struct Tables<'t> {
    objects: Table<'t, &'static [u8], &'static [u8]>,
    prefixes: Table<'t, &'static [u8], &'static [u8]>,
    garbage: Table<'t, &'static [u8], &'static [u8]>,
    undeleted: Table<'t, &'static [u8], &'static [u8]>,
}

/// The store that the index describes, and the id under which it owns prefixes there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub store: String,
    pub owner: Uuid,
}

/// The condition of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The key has no object.
    Absent,
    /// The key's object has this blob. `None` stands for an etag that no object has.
    Blob(Option<Uuid>),
}

/// A blob to become the object of a key.
pub struct Put {
    pub key: Key,
    pub record: Record,
    pub condition: Option<Condition>,
    /// The oldest blob of the prefix whose put is in progress. This blob and later ones may have no object.
    pub sweep_from: Uuid,
}

/// The result of a put. A blob that is not stored, and one that is replaced, are deleted later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    Stored,
    ConditionFailed,
    /// The put was refused with this error. The second value is whether the refusal must be reported immediately.
    Refused(StorageError, bool),
}

impl Condition {
    pub fn holds(self, current: Option<&Record>) -> bool {
        match self {
            Self::Absent => current.is_none(),
            Self::Blob(expected) => current.is_some_and(|current| Some(current.blob) == expected),
        }
    }
}

impl ReadTables {
    pub fn open(transaction: &ReadTransaction) -> WriteResult<Self> {
        Ok(Self {
            objects: transaction.open_table(OBJECTS)?,
            prefixes: transaction.open_table(PREFIXES)?,
            garbage: transaction.open_table(GARBAGE)?,
            undeleted: transaction.open_table(UNDELETED)?,
        })
    }

    /// Returns the row of a prefix; `None` if its index is not complete.
    pub fn row(&self, prefix: &str) -> WriteResult<Option<PrefixRow>> {
        find(&self.prefixes, prefix.as_bytes())
    }

    /// Returns all rows with their prefixes.
    pub fn rows(&self) -> WriteResult<Vec<(String, PrefixRow)>> {
        let rows = self.prefixes.range::<&[u8]>(..)?;
        rows.map(|row| {
            let (prefix, row) = row?;
            Ok((String::from_utf8_lossy(prefix.value()).into_owned(), decode(row.value())?))
        })
        .collect()
    }

    pub fn record(&self, prefix: &str, key: &str) -> WriteResult<Option<Record>> {
        find(&self.objects, &composite(prefix, key.as_bytes()))
    }

    /// Returns the sum of the sizes of the blobs of a prefix that must be deleted, in bytes.
    pub fn undeleted_bytes(&self, prefix: &str) -> WriteResult<u64> {
        find_bytes(&self.undeleted, prefix)
    }

    /// Returns whether a blob must still be deleted.
    pub fn is_garbage(&self, prefix: &str, blob: Uuid) -> WriteResult<bool> {
        Ok(self.garbage.get(composite(prefix, blob.as_bytes()).as_slice())?.is_some())
    }

    /// Returns a page of the objects of a prefix.
    pub fn list(&self, prefix: &str, options: &ListOptions) -> WriteResult<Page> {
        listing::list(&self.objects, composite(prefix, b""), options)
    }

    /// Returns the next blobs to delete, after `last`, except those that `skip` selects. Returns only a few blobs of
    /// each prefix, so that a prefix with many blobs does not delay the others.
    pub fn garbage(
        &self,
        last: Option<&(String, Uuid)>,
        skip: impl Fn(&Uuid) -> bool,
    ) -> WriteResult<Vec<(String, Uuid)>> {
        let mut found: Vec<(String, Uuid)> = Vec::new();
        let last = last.map(|(prefix, blob)| composite(prefix, blob.as_bytes()));
        let mut from = last.map_or(Bound::Unbounded, Bound::Excluded);
        'seek: loop {
            for row in self.garbage.range::<&[u8]>((from.as_ref().map(Vec::as_slice), Bound::Unbounded))? {
                let (row, _) = row?;
                let Some((prefix, blob)) = split_garbage(row.value()) else {
                    return Err(redb::Error::Corrupted("a row of the garbage is malformed".to_owned()));
                };
                if found.len() == MAX_DELETIONS {
                    return Ok(found);
                }
                let first = found.len().checked_sub(MAX_DELETIONS_PER_PREFIX).and_then(|first| found.get(first));
                if first.is_some_and(|(first, _)| *first == prefix) {
                    from = Bound::Included([prefix.as_bytes(), &[1]].concat());
                    continue 'seek;
                }
                if !skip(&blob) {
                    found.push((prefix, blob));
                }
            }
            return Ok(found);
        }
    }
}

impl<'t> Tables<'t> {
    pub fn open(transaction: &'t WriteTransaction) -> WriteResult<Self> {
        Ok(Self {
            objects: transaction.open_table(OBJECTS)?,
            prefixes: transaction.open_table(PREFIXES)?,
            garbage: transaction.open_table(GARBAGE)?,
            undeleted: transaction.open_table(UNDELETED)?,
        })
    }

    /// Makes a blob the object of its key, if the condition and the quota allow it.
    pub fn put(&mut self, grant: &Grant, put: &Put) -> WriteResult<PutOutcome> {
        let Put { key, record, condition, sweep_from } = put;
        let mut row = self.row(grant)?;
        row.sweep_from = Some(*sweep_from);
        row.newest = row.newest.max(record.blob);
        let at = composite(&grant.prefix, key.as_str().as_bytes());
        let current: Option<Record> = find(&self.objects, &at)?;
        let replaced = current.as_ref().map(|current| current.size);
        let outcome = if condition.is_some_and(|condition| !condition.holds(current.as_ref())) {
            PutOutcome::ConditionFailed
        } else if let Err(error) = row.check_quota(grant.quota_bytes, replaced, record.size) {
            PutOutcome::Refused(error, row.refuse(grant.quota_bytes, replaced, record.size))
        } else {
            PutOutcome::Stored
        };
        if outcome == PutOutcome::Stored {
            insert(&mut self.objects, &at, record)?;
            row.replace(replaced, Some(record.size));
            row.update_refusal(grant.quota_bytes);
            if let Some(current) = current {
                self.add_garbage(&grant.prefix, current.blob, current.blob_bytes())?;
            }
        } else {
            self.add_garbage(&grant.prefix, record.blob, record.blob_bytes())?;
        }
        insert(&mut self.prefixes, grant.prefix.as_bytes(), &row)?;
        Ok(outcome)
    }

    /// Removes objects. Returns whether there were any.
    pub fn delete(&mut self, grant: &Grant, keys: &[Key]) -> WriteResult<bool> {
        let mut row = self.row(grant)?;
        let mut changed = false;
        for key in keys {
            let at = composite(&grant.prefix, key.as_str().as_bytes());
            let removed = self.objects.remove(at.as_slice())?.map(|removed| decode::<Record>(removed.value()));
            if let Some(removed) = removed.transpose()? {
                self.add_garbage(&grant.prefix, removed.blob, removed.blob_bytes())?;
                row.replace(Some(removed.size), None);
                changed = true;
            }
        }
        if changed {
            row.update_refusal(grant.quota_bytes);
            insert(&mut self.prefixes, grant.prefix.as_bytes(), &row)?;
        }
        Ok(changed)
    }

    /// Changes the row of a prefix.
    pub fn update_row<T>(&mut self, grant: &Grant, update: impl FnOnce(&mut PrefixRow) -> T) -> WriteResult<T> {
        let mut row = self.row(grant)?;
        let value = update(&mut row);
        insert(&mut self.prefixes, grant.prefix.as_bytes(), &row)?;
        Ok(value)
    }

    /// Records the first id of the blobs that may have no object; `None` if there are none.
    pub fn set_sweep_from(&mut self, prefix: &str, sweep_from: Option<Uuid>) -> WriteResult<()> {
        if let Some(mut row) = find::<PrefixRow>(&self.prefixes, prefix.as_bytes())? {
            row.sweep_from = sweep_from;
            insert(&mut self.prefixes, prefix.as_bytes(), &row)?;
        }
        Ok(())
    }

    /// Marks a blob of about this size for deletion, unless its object still refers to it. Returns whether it will be
    /// deleted.
    pub fn discard(&mut self, prefix: &str, key: &str, blob: Uuid, bytes: u64) -> WriteResult<bool> {
        let record: Option<Record> = find(&self.objects, &composite(prefix, key.as_bytes()))?;
        let is_unused = record.is_none_or(|record| record.blob != blob);
        if is_unused {
            self.add_garbage(prefix, blob, bytes)?;
        }
        Ok(is_unused)
    }

    /// Removes deleted blobs from the garbage.
    pub fn remove_garbage(&mut self, deleted: &[(String, Uuid)]) -> WriteResult<()> {
        for (prefix, blob) in deleted {
            let removed = self.garbage.remove(composite(prefix, blob.as_bytes()).as_slice())?;
            if let Some(bytes) = removed.map(|bytes| decode_bytes(bytes.value())) {
                self.update_undeleted(prefix, |undeleted| undeleted.saturating_sub(bytes))?;
            }
        }
        Ok(())
    }

    /// Removes the next rows of a prefix, before its index is rebuilt or its objects are deleted. Returns whether none
    /// are left. The first call removes the [`PrefixRow`], so that the index stays incomplete if the further calls are
    /// prevented, for example by a crash.
    pub fn clear_some(&mut self, prefix: &str) -> WriteResult<bool> {
        self.prefixes.remove(prefix.as_bytes())?;
        self.undeleted.remove(prefix.as_bytes())?;
        let (start, end) = (composite(prefix, b""), composite(prefix, &[0xff]));
        let mut left = MAX_CLEARED;
        for table in [&mut self.objects, &mut self.garbage] {
            let rows = table.extract_from_if(start.as_slice()..end.as_slice(), |_, _| true)?;
            for row in rows.take(left) {
                row?;
                left -= 1;
            }
        }
        Ok(left > 0)
    }

    /// Adds a blob of the store while the index is rebuilt. The newest blob of a key becomes its object. Updates only
    /// `row`, which is stored at the end.
    pub fn add_rebuilt(&mut self, prefix: &str, row: &mut PrefixRow, key: &str, record: &Record) -> WriteResult<()> {
        let at = composite(prefix, key.as_bytes());
        let current: Option<Record> = find(&self.objects, &at)?;
        row.newest = row.newest.max(record.blob);
        if let Some(current) = current.as_ref().filter(|current| current.blob > record.blob) {
            tracing::debug!(prefix, newer = %current.blob, "found a replaced blob");
            return self.add_garbage(prefix, record.blob, record.blob_bytes());
        }
        insert(&mut self.objects, &at, record)?;
        row.replace(current.as_ref().map(|current| current.size), Some(record.size));
        match current {
            Some(replaced) => self.add_garbage(prefix, replaced.blob, replaced.blob_bytes()),
            None => Ok(()),
        }
    }

    /// Completes the rebuilt index of a prefix.
    pub fn end_rebuild(&mut self, prefix: &str, row: &PrefixRow) -> WriteResult<()> {
        insert(&mut self.prefixes, prefix.as_bytes(), row)
    }

    /// Returns the row of a grant's prefix, with the grant's project.
    fn row(&self, grant: &Grant) -> WriteResult<PrefixRow> {
        let row: Option<PrefixRow> = find(&self.prefixes, grant.prefix.as_bytes())?;
        let mut row = row.ok_or_else(|| redb::Error::Corrupted("the row of a prefix is missing".to_owned()))?;
        if row.project != grant.project {
            row.project.clone_from(&grant.project);
        }
        Ok(row)
    }

    /// Marks a blob for deletion, unless it is already marked.
    fn add_garbage(&mut self, prefix: &str, blob: Uuid, bytes: u64) -> WriteResult<()> {
        let at = composite(prefix, blob.as_bytes());
        if self.garbage.get(at.as_slice())?.is_some() {
            return Ok(());
        }
        let bytes = bytes.max(MIN_BLOB_BYTES);
        self.garbage.insert(at.as_slice(), bytes.to_be_bytes().as_slice())?;
        self.update_undeleted(prefix, |undeleted| undeleted.saturating_add(bytes))
    }

    /// Changes the sum of the sizes of the blobs of a prefix that must be deleted.
    fn update_undeleted(&mut self, prefix: &str, update: impl FnOnce(u64) -> u64) -> WriteResult<()> {
        let bytes = update(find_bytes(&self.undeleted, prefix)?);
        if bytes == 0 {
            self.undeleted.remove(prefix.as_bytes())?;
        } else {
            self.undeleted.insert(prefix.as_bytes(), bytes.to_be_bytes().as_slice())?;
        }
        Ok(())
    }
}

/// Creates the missing tables of the index of a store. If the index describes another store, removes its rows, so that
/// it is rebuilt from the new store. Returns the id under which the index owns prefixes.
pub fn prepare_tables(transaction: &WriteTransaction, store: &str) -> WriteResult<Uuid> {
    let mut table = transaction.open_table(IDENTITY)?;
    let found: Option<Identity> = find(&table, &[])?;
    let owner = match found {
        Some(identity) if identity.store == store => identity.owner,
        other => {
            for definition in [OBJECTS, PREFIXES, GARBAGE, UNDELETED] {
                transaction.delete_table(definition)?;
            }
            let owner = other.map_or_else(random::id, |identity| identity.owner);
            insert(&mut table, &[], &Identity { store: store.to_owned(), owner })?;
            owner
        }
    };
    drop(Tables::open(transaction)?);
    Ok(owner)
}

/// Returns the key of a row that belongs to a prefix.
fn composite(prefix: &str, key: &[u8]) -> Vec<u8> {
    [prefix.as_bytes(), b"\0", key].concat()
}

fn split_garbage(row: &[u8]) -> Option<(String, Uuid)> {
    let (prefix, blob) = row.split_at_checked(row.len().checked_sub(size_of::<Uuid>())?)?;
    let prefix = String::from_utf8(prefix.strip_suffix(b"\0")?.to_vec()).ok()?;
    Some((prefix, Uuid::from_slice(blob).ok()?))
}

fn decode_bytes(value: &[u8]) -> u64 {
    value.try_into().map(u64::from_be_bytes).unwrap_or_default()
}

fn find_bytes(table: &impl ReadableTable<&'static [u8], &'static [u8]>, prefix: &str) -> WriteResult<u64> {
    Ok(table.get(prefix.as_bytes())?.map_or(0, |bytes| decode_bytes(bytes.value())))
}

fn find<T: DeserializeOwned>(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    key: &[u8],
) -> WriteResult<Option<T>> {
    table.get(key)?.map(|value| decode(value.value())).transpose()
}

fn insert(table: &mut Table<'_, &'static [u8], &'static [u8]>, key: &[u8], value: &impl Serialize) -> WriteResult<()> {
    let value = serde_json::to_vec(value).map_err(|error| redb::Error::Corrupted(error.to_string()))?;
    table.insert(key, value.as_slice())?;
    Ok(())
}

pub fn decode<T: DeserializeOwned>(value: &[u8]) -> WriteResult<T> {
    serde_json::from_slice(value).map_err(|error| redb::Error::Corrupted(error.to_string()))
}

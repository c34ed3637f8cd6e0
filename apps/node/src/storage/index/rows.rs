//! The row of a project's prefix.

use protocol::StorageReport;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::error::{Result, StorageError};

/// A project can store one object per KiB of its quota, plus this number. The number is limited because even an empty
/// object has a key and metadata, which take space in the index of the node.
const MIN_OBJECTS: u64 = 1000;
/// The blobs of a prefix that are being written or deleted may together take as much space as the quota, or this number
/// of bytes if the quota is smaller.
const MIN_MARGIN_BYTES: u64 = 64 << 20;
/// The least size that counts for a blob without an object, because even an empty one takes space in the store and in
/// the index.
pub const MIN_BLOB_BYTES: u64 = 1024;

/// A prefix whose index is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrefixRow {
    /// The project that used the prefix last.
    pub project: String,
    /// The sum of the sizes of all objects, in bytes.
    pub used_bytes: u64,
    /// The number of objects.
    pub objects: u64,
    /// The put that was refused because of the quota. Removed when it would fit.
    pub refusal: Option<Refusal>,
    /// The newest blob that was committed.
    pub newest: Uuid,
    /// The first id of the blobs that may have no committed object, if any. Such a blob remains if a process is killed
    /// between the write of a blob and its commit.
    pub sweep_from: Option<Uuid>,
}

/// A refused put.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Refusal {
    /// The bytes that the put would have added to the usage.
    pub growth_bytes: u64,
    /// Whether the put would have added an object.
    pub adds_object: bool,
    pub quota_bytes: u64,
    /// Whether the project is at its quota because of the put. For a put that is larger than the quota, only until the
    /// usage changes.
    pub is_current: bool,
}

impl Refusal {
    /// Returns whether the put does not even fit into an empty prefix. Its refusal does not show that the prefix is
    /// full.
    const fn is_too_large(&self) -> bool {
        self.growth_bytes > self.quota_bytes
    }
}

impl PrefixRow {
    pub const fn new(project: String) -> Self {
        Self { project, used_bytes: 0, objects: 0, refusal: None, newest: Uuid::nil(), sweep_from: None }
    }

    /// Returns the report to the control plane.
    pub fn report(&self) -> StorageReport {
        let quota_exceeded = self.refusal.is_some_and(|refusal| refusal.is_current);
        StorageReport { used_bytes: self.used_bytes, quota_exceeded }
    }

    /// Checks whether an object of `size` bytes fits, in place of the current object of its key, which has `replaced`
    /// bytes. An object that does not increase the usage fits even if the quota is exceeded, for example after a change
    /// of the plan.
    ///
    /// # Errors
    /// Returns [`StorageError::QuotaExceeded`] or [`StorageError::TooManyObjects`].
    pub fn check_quota(&self, quota_bytes: u64, replaced: Option<u64>, size: u64) -> Result<()> {
        let used = self.used_bytes.saturating_sub(replaced.unwrap_or_default()).saturating_add(size);
        let max_objects = max_objects(quota_bytes);
        if used > quota_bytes && used > self.used_bytes {
            Err(StorageError::QuotaExceeded(quota_bytes))
        } else if replaced.is_none() && self.objects >= max_objects {
            Err(StorageError::TooManyObjects(max_objects))
        } else {
            Ok(())
        }
    }

    /// Checks whether the blobs without an object, which together take `bytes`, leave space for another put. These are
    /// the blobs that must be deleted, and those in progress. Readers, a slow store and many overwrites delay the
    /// deletion, so that without this check, a project could take any amount of space.
    ///
    /// # Errors
    /// Returns [`StorageError::Undeleted`].
    pub fn check_space(&self, quota_bytes: u64, bytes: u64) -> Result<()> {
        let unused = quota_bytes.saturating_sub(self.used_bytes);
        let space = unused.saturating_add(quota_bytes.max(MIN_MARGIN_BYTES));
        if bytes <= space { Ok(()) } else { Err(StorageError::Undeleted) }
    }

    /// Records a refused put, with the arguments of [`Self::check_quota`]. Returns whether the refusal must be reported
    /// immediately: it is the first one, or the first one of a put that is not larger than the quota.
    pub fn refuse(&mut self, quota_bytes: u64, replaced: Option<u64>, size: u64) -> bool {
        let refusal = Refusal {
            growth_bytes: size.saturating_sub(replaced.unwrap_or_default()),
            adds_object: replaced.is_none(),
            quota_bytes,
            is_current: true,
        };
        let is_first = self.refusal.is_none_or(|before| before.is_too_large() && !refusal.is_too_large());
        if is_first {
            self.refusal = Some(refusal);
        }
        is_first
    }

    /// Updates the record of a refused put after a change of the usage or the quota. Removes it if the put would fit now.
    pub fn update_refusal(&mut self, quota_bytes: u64) {
        self.refusal = self.refusal.and_then(|refusal| {
            let replaced = (!refusal.adds_object).then_some(0);
            self.check_quota(quota_bytes, replaced, refusal.growth_bytes).err()?;
            Some(Refusal { is_current: !refusal.is_too_large(), ..refusal })
        });
    }

    /// Replaces an object by another one; either may be absent.
    pub fn replace(&mut self, before: Option<u64>, after: Option<u64>) {
        self.used_bytes = self.used_bytes.saturating_sub(before.unwrap_or_default()) + after.unwrap_or_default();
        self.objects = self.objects.saturating_sub(before.map_or(0, |_| 1)) + after.map_or(0, |_| 1);
    }
}

const fn max_objects(quota_bytes: u64) -> u64 {
    MIN_OBJECTS + quota_bytes / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_limits_growth_in_bytes_and_objects() {
        let mut row = PrefixRow::new("p".to_owned());
        assert_eq!(row.check_quota(10, None, 10), Ok(()));
        assert_eq!(row.check_quota(10, None, 11), Err(StorageError::QuotaExceeded(10)));
        row.replace(None, Some(8));
        assert_eq!(row.check_quota(10, Some(8), 10), Ok(()));
        assert_eq!(row.check_quota(10, None, 3), Err(StorageError::QuotaExceeded(10)));
        // The quota is below the usage after a change of the plan.
        assert_eq!(row.check_quota(5, Some(8), 7), Ok(()));
        assert_eq!(row.check_quota(5, Some(8), 9), Err(StorageError::QuotaExceeded(5)));
        row.objects = 1000;
        assert_eq!(row.check_quota(10, None, 0), Err(StorageError::TooManyObjects(1000)));
        assert_eq!(row.check_quota(10, Some(8), 0), Ok(()));
    }

    #[test]
    fn blobs_without_an_object_are_limited_by_the_quota_and_a_margin() {
        let mut row = PrefixRow::new("p".to_owned());
        let (small, large) = (10, 1 << 30);
        assert_eq!(row.check_space(small, MIN_MARGIN_BYTES + 10), Ok(()));
        assert_eq!(row.check_space(small, MIN_MARGIN_BYTES + 11), Err(StorageError::Undeleted));
        row.used_bytes = 4;
        assert_eq!(row.check_space(small, MIN_MARGIN_BYTES + 7), Err(StorageError::Undeleted));
        // A usage above the quota, for example after a change of the plan, does not count.
        row.used_bytes = 1 << 40;
        assert_eq!(row.check_space(small, MIN_MARGIN_BYTES), Ok(()));
        assert_eq!(row.check_space(large, large), Ok(()));
        assert_eq!(row.check_space(large, large + 1), Err(StorageError::Undeleted));
    }

    #[test]
    fn refusal_lasts_until_the_put_would_fit() {
        let mut row = PrefixRow::new("p".to_owned());
        row.replace(None, Some(8));
        assert!(row.refuse(10, None, 5) && !row.refuse(10, None, 4));
        row.replace(Some(8), Some(6));
        row.update_refusal(10);
        assert!(row.report().quota_exceeded);
        row.replace(Some(6), Some(5));
        row.update_refusal(10);
        assert!(!row.report().quota_exceeded);
        // A larger quota, and the deletion of an object if there are too many.
        assert!(row.refuse(10, Some(5), 11));
        row.update_refusal(11);
        assert!(!row.report().quota_exceeded);
        row.objects = 1000;
        assert!(row.refuse(11, None, 0));
        row.update_refusal(11);
        assert!(row.report().quota_exceeded);
        row.replace(Some(0), None);
        row.update_refusal(11);
        assert!(!row.report().quota_exceeded);
    }

    #[test]
    fn refusal_of_a_put_above_the_quota_does_not_hide_a_full_prefix() {
        let mut row = PrefixRow::new("p".to_owned());
        assert!(row.refuse(10, None, 11));
        assert!(row.report().quota_exceeded);
        for (before, after) in [(None, Some(10)), (Some(10), None), (None, Some(10))] {
            row.replace(before, after);
            row.update_refusal(10);
            assert!(!row.refuse(10, None, 11) && !row.report().quota_exceeded);
        }
        assert!(row.refuse(10, None, 1) && !row.refuse(10, None, 11));
        assert!(row.report().quota_exceeded);
        row.replace(Some(10), Some(9));
        row.update_refusal(10);
        assert_eq!((row.report().quota_exceeded, row.refusal), (false, None));
    }
}

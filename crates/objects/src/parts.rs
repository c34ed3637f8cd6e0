//! The parts of an upload.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// The size and the number of parts, and limits on the parts in flight.
#[derive(Debug, Clone)]
pub struct PartLimits {
    /// The size of the parts in bytes. The parts of an object that is expected to be large are a multiple of it.
    pub(crate) part_size: usize,
    /// The largest number of parts of an object.
    pub(crate) max_parts: usize,
    /// The largest number of parts in flight per object.
    pub(crate) max_concurrent: usize,
    /// Permits for the parts in flight of all objects: one for each `part_size` bytes.
    pub(crate) permits: Arc<Semaphore>,
}

impl PartLimits {
    /// The largest total size of the parts in flight of all uploads, in bytes. In addition, each upload buffers one
    /// part.
    const MAX_IN_FLIGHT_BYTES: usize = 80 * 1024 * 1024;

    /// Returns the limits for a remote store. S3 requires at least 5 MiB for all parts except the last, and accepts the
    /// part numbers 1 to 10,000.
    #[must_use]
    pub fn remote() -> Self {
        Self::new(5 * 1024 * 1024, 10_000, 3)
    }

    /// Returns the limits for a store on the local disk, where the number of parts is not limited.
    #[must_use]
    pub fn local() -> Self {
        Self::new(256 * 1024, usize::MAX, 4)
    }

    /// Returns limits with another largest number of parts.
    #[must_use]
    pub fn with_max_parts(self, max_parts: usize) -> Self {
        Self { max_parts, ..self }
    }

    fn new(part_size: usize, max_parts: usize, max_concurrent: usize) -> Self {
        let permits = Arc::new(Semaphore::new(Self::MAX_IN_FLIGHT_BYTES / part_size));
        Self { part_size, max_parts, max_concurrent, permits }
    }

    /// Returns the size of the parts of an object that is expected to have this size, as a multiple of `part_size`. The
    /// object may become twice as large. One part never exceeds the limit on the bytes in flight.
    pub(crate) fn multiple_for(&self, expected_bytes: u64) -> usize {
        let smallest = bytes(self.part_size).saturating_mul(bytes(self.max_parts)).max(1);
        let multiple = usize::try_from(expected_bytes.saturating_mul(2).div_ceil(smallest)).unwrap_or(usize::MAX);
        multiple.clamp(1, (Self::MAX_IN_FLIGHT_BYTES / self.part_size).max(1))
    }
}

/// Returns a size or a number as 64 bits.
pub(crate) fn bytes(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_bucket_fit_the_limits_of_s3_and_of_memory() {
        let limits = PartLimits::remote();
        let size = |expected: u64| limits.multiple_for(expected) * limits.part_size;
        assert_eq!(size(0), 5 << 20);
        assert_eq!(size(100 << 30), 25 << 20);
        assert_eq!(size(u64::MAX), PartLimits::MAX_IN_FLIGHT_BYTES);
        assert_eq!(PartLimits::local().multiple_for(u64::MAX), 1);
    }
}

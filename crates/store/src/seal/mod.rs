//! Seals and opens values with the configured keys, and re-seals stored values after a change of the keys.

mod column;
mod rotation;

use kernel::Secret;
use kernel::seal::{AssociatedData, Sealed};

use crate::{Error, Result, Store, idempotency, outbox};

pub use column::SealedColumn;
pub use rotation::{FailedValue, KeyCount, RotatedBatch, Rotation};

/// The sealed columns of the schema `store`.
pub const SEALED_COLUMNS: &[SealedColumn] = &[outbox::PAYLOAD, idempotency::ANSWER];

impl Store {
    /// Seals a value and binds it to its associated data.
    ///
    /// # Errors
    /// Returns [`Error::Inconsistent`] if no key is configured or the value is too long.
    pub fn seal(&self, data: AssociatedData<'_>, plaintext: &[u8]) -> Result<Sealed> {
        self.keys().seal(self.clock_rng(), data, plaintext).map_err(Error::inconsistent)
    }

    /// Opens a value that was sealed with the same associated data.
    ///
    /// # Errors
    /// Returns [`Error::Inconsistent`] with the reason as its source if the key is not configured, the value is
    /// corrupt, or the associated data differs.
    pub fn open(&self, data: AssociatedData<'_>, sealed: &Sealed) -> Result<Vec<u8>> {
        self.keys().open(data, sealed).map_err(Error::inconsistent)
    }

    /// Opens a sealed text, like [`Store::open`].
    ///
    /// # Errors
    /// Returns [`Error::Inconsistent`] also for a value that is not UTF-8. The error does not contain the value.
    pub fn open_text(&self, data: AssociatedData<'_>, sealed: &Sealed) -> Result<Secret> {
        let text = String::from_utf8(self.open(data, sealed)?);
        text.map(Secret::new).map_err(|error| Error::inconsistent(error.utf8_error()))
    }
}

//! Seals and opens values with the configured keys.

use kernel::seal::{AssociatedData, Sealed};

use crate::{Error, Result, Store};

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
}

//! Sealed values of rows, under the keys that this process was configured with.

use kernel::seal::{Place, Sealed};

use crate::{Error, Result, Store};

impl Store {
    /// Seals a value for its place.
    ///
    /// # Errors
    /// [`Error::Inconsistent`] when there is no key to seal with, or the value is beyond all measure.
    pub fn seal(&self, place: Place<'_>, plaintext: &[u8]) -> Result<Sealed> {
        self.keys().seal(self.world(), place, plaintext).map_err(Error::inconsistent)
    }

    /// Opens what was sealed for this place.
    ///
    /// # Errors
    /// [`Error::Inconsistent`], whose source says why, when its key is not configured or it was not sealed for this
    /// very place.
    pub fn open(&self, place: Place<'_>, sealed: &Sealed) -> Result<Vec<u8>> {
        self.keys().open(place, sealed).map_err(Error::inconsistent)
    }
}

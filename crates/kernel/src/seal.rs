//! Sealed values: what must be read again, but not by who holds a copy of the database.
//!
//! AES-256-GCM (NIST SP 800-38D) with a random 96-bit nonce for every value. The place of the value is associated
//! data, so a ciphertext moved to another row or field does not open. The key's id stands beside the value: the first
//! configured key seals, every configured key opens.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::World;

/// Where a sealed value lives.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Schema and table, such as `projects.secrets`.
    pub table: &'a str,
    /// The row's key, as text.
    pub row: &'a str,
    /// The column.
    pub field: &'a str,
}

/// A sealed value as it is stored. Its `Debug` shows the key's id alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The id of the key that sealed it.
    pub key_id: String,
    /// Nonce, ciphertext and tag.
    pub bytes: Vec<u8>,
}

/// The keys of this deployment: `SVC_SEALING_KEYS`, `id:base64,…`. Cheap to clone. By default there are none, which
/// seal and open nothing.
#[derive(Clone, Default)]
pub struct Keys(Arc<[(String, LessSafeKey)]>);

/// A setting that holds no usable keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be one or more id:base64 of 32-byte keys with different ids, separated by commas")]
pub struct InvalidKeys;

/// A value that cannot be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// There is nothing to seal it with.
    #[error("no sealing key is configured")]
    NoKey,
    /// It is longer than the cipher takes (64 GiB).
    #[error("longer than the cipher takes")]
    TooLong,
}

/// A sealed value that does not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Its key is not configured here.
    #[error("sealed under the key {0:?}, which is not configured")]
    UnknownKey(String),
    /// It was changed, cut or moved.
    #[error("does not open in this place")]
    Broken,
}

impl Keys {
    /// Reads the setting.
    ///
    /// # Errors
    /// When there is no key, an id is empty or repeated, or a key is not 32 bytes of base64.
    pub fn parse(setting: &str) -> Result<Self, InvalidKeys> {
        let mut keys: Vec<(String, LessSafeKey)> = Vec::new();
        for item in setting.split(',') {
            let (id, key) = item.trim().split_once(':').ok_or(InvalidKeys)?;
            let key = STANDARD.decode(key).map_err(|_| InvalidKeys)?;
            let key = UnboundKey::new(&AES_256_GCM, &key).map_err(|_| InvalidKeys)?;
            if id.is_empty() || keys.iter().any(|(known, _)| known == id) {
                return Err(InvalidKeys);
            }
            keys.push((id.to_owned(), LessSafeKey::new(key)));
        }
        Ok(Self(keys.into()))
    }

    /// Seals `plaintext` for its place under the first key.
    ///
    /// # Errors
    /// When there is no key, or the plaintext is longer than the cipher takes.
    pub fn seal(&self, world: &World, place: Place<'_>, plaintext: &[u8]) -> Result<Sealed, SealError> {
        let (key_id, key) = self.0.first().ok_or(SealError::NoKey)?;
        let nonce = world.bytes::<NONCE_LEN>();
        let mut sealed = plaintext.to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), place.associated(key_id), &mut sealed)
            .map_err(|_| SealError::TooLong)?;
        let bytes = [nonce.as_slice(), &sealed].concat();
        Ok(Sealed { key_id: key_id.clone(), bytes })
    }

    /// Opens what was sealed for this place.
    ///
    /// # Errors
    /// When the key is unknown, or the value was not sealed for this very place.
    pub fn open(&self, place: Place<'_>, sealed: &Sealed) -> Result<Vec<u8>, OpenError> {
        let unknown = || OpenError::UnknownKey(sealed.key_id.clone());
        let (key_id, key) = self.0.iter().find(|(id, _)| *id == sealed.key_id).ok_or_else(unknown)?;
        let (nonce, rest) = sealed.bytes.split_at_checked(NONCE_LEN).ok_or(OpenError::Broken)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| OpenError::Broken)?;
        let mut rest = rest.to_vec();
        let plaintext = key.open_in_place(nonce, place.associated(key_id), &mut rest).map_err(|_| OpenError::Broken)?;
        Ok(plaintext.to_vec())
    }
}

impl Place<'_> {
    /// Each part behind its length, so that no two places have the same bytes.
    fn associated(self, key_id: &str) -> Aad<Vec<u8>> {
        let parts = [self.table, self.row, self.field, key_id];
        Aad::from(
            parts.iter().flat_map(|part| [&(part.len() as u64).to_be_bytes(), part.as_bytes()].concat()).collect(),
        )
    }
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealed(under {})", self.key_id)
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(id, _)| id)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OLD: &str = "old:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    const NEW: &str = "new:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    fn keys(setting: &str) -> Keys {
        Keys::parse(setting).expect("keys")
    }

    proptest! {
        #[test]
        fn opens_in_its_own_place_alone(plain: Vec<u8>, table: String, row: String, field: String, other: String) {
            let keys = keys(OLD);
            let place = Place { table: &table, row: &row, field: &field };
            let sealed = keys.seal(&World::system(), place, &plain).expect("sealed");
            prop_assert_eq!(keys.open(place, &sealed), Ok(plain));
            for elsewhere in [
                Place { table: &other, ..place },
                Place { row: &other, ..place },
                Place { field: &other, ..place },
                Place { table: &format!("{table}{row}"), row: "", ..place },
            ] {
                let same = (elsewhere.table, elsewhere.row, elsewhere.field) == (place.table, place.row, place.field);
                prop_assert!(same || keys.open(elsewhere, &sealed) == Err(OpenError::Broken));
            }
        }

        #[test]
        fn any_changed_bit_is_noticed(plain: Vec<u8>, at: prop::sample::Index, bit in 0u8..8) {
            let keys = keys(OLD);
            let place = Place { table: "t", row: "r", field: "f" };
            let mut sealed = keys.seal(&World::system(), place, &plain).expect("sealed");
            let at = at.index(sealed.bytes.len());
            sealed.bytes[at] ^= 1 << bit;
            prop_assert_eq!(keys.open(place, &sealed), Err(OpenError::Broken));
        }
    }

    #[test]
    fn the_first_key_seals_and_every_key_opens() {
        let place = Place { table: "t", row: "r", field: "f" };
        let sealed = keys(OLD).seal(&World::system(), place, b"secret").expect("sealed");
        let both = keys(&format!("{NEW},{OLD}"));
        assert_eq!(both.open(place, &sealed).expect("opened"), b"secret");
        assert_eq!(both.seal(&World::system(), place, b"secret").expect("sealed").key_id, "new");
        assert_eq!(keys(NEW).open(place, &sealed), Err(OpenError::UnknownKey("old".into())));
    }

    #[test]
    fn without_keys_nothing_is_sealed_and_nothing_opens() {
        let place = Place { table: "t", row: "r", field: "f" };
        assert_eq!(Keys::default().seal(&World::system(), place, b"secret"), Err(SealError::NoKey));
        let sealed = keys(OLD).seal(&World::system(), place, b"secret").expect("sealed");
        assert_eq!(Keys::default().open(place, &sealed), Err(OpenError::UnknownKey("old".into())));
    }

    #[test]
    fn settings_without_usable_keys_are_refused() {
        for setting in
            ["", "id", "id:", "id:AAAA", ":AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", &format!("{OLD},{OLD}")]
        {
            assert_eq!(Keys::parse(setting).err(), Some(InvalidKeys), "{setting}");
        }
    }
}

//! Sealed values, which the service can read again and which a copy of the database does not reveal.
//!
//! AES-256-GCM (NIST SP 800-38D) with a random 96-bit nonce per value. Table, row and column of the value are
//! associated data, so a ciphertext cannot be opened after it is moved to another row or column. The key's id is stored
//! with the value: the first configured key seals, and every configured key opens.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::ClockRng;

/// The associated data of a sealed value: its location in the database.
#[derive(Debug, Clone, Copy)]
pub struct AssociatedData<'a> {
    /// Schema and table, such as `projects.secrets`.
    pub table: &'a str,
    /// The row's key, as text.
    pub row: &'a str,
    /// The column.
    pub field: &'a str,
}

/// A sealed value as it is stored. Its `Debug` shows only the key's id.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The id of the key that sealed it.
    pub key_id: String,
    /// Nonce, ciphertext and tag.
    pub bytes: Vec<u8>,
}

/// The keys of this installation, from `SVC_SEALING_KEYS`: `id:base64,…`. Cheap to clone. The default has no keys, and
/// can neither seal nor open.
#[derive(Clone, Default)]
pub struct Keys(Arc<[(String, LessSafeKey)]>);

/// A setting without usable keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be one or more id:base64 of 32-byte keys with distinct ids, separated by commas")]
pub struct InvalidKeys;

/// A value that cannot be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// No key is configured.
    #[error("no sealing key is configured")]
    NoKey,
    /// The value exceeds the limit of the cipher (64 GiB).
    #[error("exceeds the size limit of the cipher")]
    TooLong,
}

/// A sealed value that cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The key is not configured.
    #[error("sealed with the key {0:?}, which is not configured")]
    UnknownKey(String),
    /// The value is corrupt, or the associated data differs.
    #[error("corrupt, or sealed with other associated data")]
    Corrupt,
}

impl Keys {
    /// Parses the setting.
    ///
    /// # Errors
    /// Returns [`InvalidKeys`] if there is no key, an id is empty or repeated, or a key is not 32 bytes of base64.
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

    /// Returns the ids of the keys. The first key is the one that seals.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(id, _)| id.as_str())
    }

    /// Seals `plaintext` with the first key and binds it to its associated data.
    ///
    /// # Errors
    /// Returns an error if there is no key, or the plaintext exceeds the limit of the cipher.
    pub fn seal(&self, clock_rng: &ClockRng, data: AssociatedData<'_>, plaintext: &[u8]) -> Result<Sealed, SealError> {
        let (key_id, key) = self.0.first().ok_or(SealError::NoKey)?;
        let nonce = clock_rng.bytes::<NONCE_LEN>();
        let mut sealed = plaintext.to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), data.to_aad(key_id), &mut sealed)
            .map_err(|_| SealError::TooLong)?;
        let bytes = [nonce.as_slice(), &sealed].concat();
        Ok(Sealed { key_id: key_id.clone(), bytes })
    }

    /// Opens a value that was sealed with the same associated data.
    ///
    /// # Errors
    /// Returns an error if the key is not configured, the value is corrupt, or the associated data differs.
    pub fn open(&self, data: AssociatedData<'_>, sealed: &Sealed) -> Result<Vec<u8>, OpenError> {
        let unknown = || OpenError::UnknownKey(sealed.key_id.clone());
        let (key_id, key) = self.0.iter().find(|(id, _)| *id == sealed.key_id).ok_or_else(unknown)?;
        let (nonce, rest) = sealed.bytes.split_at_checked(NONCE_LEN).ok_or(OpenError::Corrupt)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| OpenError::Corrupt)?;
        let mut rest = rest.to_vec();
        let plaintext = key.open_in_place(nonce, data.to_aad(key_id), &mut rest).map_err(|_| OpenError::Corrupt)?;
        Ok(plaintext.to_vec())
    }
}

impl AssociatedData<'_> {
    /// Prefixes each part with its length, so that different associated data has different bytes.
    fn to_aad(self, key_id: &str) -> Aad<Vec<u8>> {
        let parts = [self.table, self.row, self.field, key_id];
        Aad::from(
            parts.iter().flat_map(|part| [&(part.len() as u64).to_be_bytes(), part.as_bytes()].concat()).collect(),
        )
    }
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealed(key {})", self.key_id)
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.ids()).finish()
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
        fn opens_only_with_its_associated_data(plain: Vec<u8>, table: String, row: String, field: String, other: String) {
            let keys = keys(OLD);
            let data = AssociatedData { table: &table, row: &row, field: &field };
            let sealed = keys.seal(&ClockRng::system(), data, &plain).expect("sealed");
            prop_assert_eq!(keys.open(data, &sealed), Ok(plain));
            for elsewhere in [
                AssociatedData { table: &other, ..data },
                AssociatedData { row: &other, ..data },
                AssociatedData { field: &other, ..data },
                AssociatedData { table: &format!("{table}{row}"), row: "", ..data },
            ] {
                let same = (elsewhere.table, elsewhere.row, elsewhere.field) == (data.table, data.row, data.field);
                prop_assert!(same || keys.open(elsewhere, &sealed) == Err(OpenError::Corrupt));
            }
        }

        #[test]
        fn every_changed_bit_is_detected(plain: Vec<u8>, at: prop::sample::Index, bit in 0u8..8) {
            let keys = keys(OLD);
            let data = AssociatedData { table: "t", row: "r", field: "f" };
            let mut sealed = keys.seal(&ClockRng::system(), data, &plain).expect("sealed");
            let at = at.index(sealed.bytes.len());
            sealed.bytes[at] ^= 1 << bit;
            prop_assert_eq!(keys.open(data, &sealed), Err(OpenError::Corrupt));
        }
    }

    #[test]
    fn first_key_seals_and_every_key_opens() {
        let data = AssociatedData { table: "t", row: "r", field: "f" };
        let sealed = keys(OLD).seal(&ClockRng::system(), data, b"secret").expect("sealed");
        let both = keys(&format!("{NEW},{OLD}"));
        assert_eq!(both.open(data, &sealed).expect("opened"), b"secret");
        assert_eq!(both.seal(&ClockRng::system(), data, b"secret").expect("sealed").key_id, "new");
        assert_eq!(keys(NEW).open(data, &sealed), Err(OpenError::UnknownKey("old".into())));
        assert_eq!(both.ids().collect::<Vec<_>>(), ["new", "old"]);
    }

    #[test]
    fn without_keys_sealing_and_opening_fail() {
        let data = AssociatedData { table: "t", row: "r", field: "f" };
        assert_eq!(Keys::default().seal(&ClockRng::system(), data, b"secret"), Err(SealError::NoKey));
        let sealed = keys(OLD).seal(&ClockRng::system(), data, b"secret").expect("sealed");
        assert_eq!(Keys::default().open(data, &sealed), Err(OpenError::UnknownKey("old".into())));
    }

    #[test]
    fn settings_without_usable_keys_are_rejected() {
        for setting in
            ["", "id", "id:", "id:AAAA", ":AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", &format!("{OLD},{OLD}")]
        {
            assert_eq!(Keys::parse(setting).err(), Some(InvalidKeys), "{setting}");
        }
    }
}

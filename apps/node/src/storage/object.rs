//! Objects, and the header at the beginning of their blobs.
//!
//! A blob is `svcblob1`, the length of the header as a big-endian `u32`, the header in JSON, and the content. The
//! header repeats what the index knows, except the size, so that the index can be rebuilt from the store.

use std::collections::BTreeMap;

use bytes::{Buf as _, Bytes};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::error::{Result, StorageError};
use super::key::Key;

const MAGIC: &[u8] = b"svcblob1";
/// The length of the magic and of the header's length.
const PREAMBLE: usize = MAGIC.len() + size_of::<u32>();
const MAX_CONTENT_TYPE_BYTES: usize = 255;
const MAX_METADATA_BYTES: usize = 2048;
const MAX_METADATA_ENTRIES: usize = 64;

/// The attributes of an object that worker code sets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attributes {
    pub content_type: Option<String>,
    /// At most 64 entries, and 2 KiB of names and values. Control characters are not permitted, because JSON would
    /// lengthen them.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

/// An object, as worker code sees it. `uploaded` is in milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredObject {
    pub key: String,
    pub size: u64,
    pub etag: String,
    #[serde(flatten)]
    pub attributes: Attributes,
    pub uploaded: u64,
}

/// The value of an object in the index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The blob with the content. Each put creates another blob, so the etag is derived from it.
    pub blob: Uuid,
    /// The size of the content in bytes.
    pub size: u64,
    /// The offset of the content in the blob.
    pub offset: u64,
    pub uploaded: u64,
    #[serde(flatten)]
    pub attributes: Attributes,
}

/// The header of a blob.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    pub key: String,
    pub uploaded: u64,
    #[serde(flatten)]
    pub attributes: Attributes,
}

/// The result of [`Header::decode`]: the header, or the number of bytes of the blob that are needed to decode it.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    Header { header: Header, offset: u64 },
    Incomplete { needed: u64 },
}

impl Attributes {
    /// Checks the attributes.
    ///
    /// # Errors
    /// Returns [`StorageError::InvalidArgument`] if an attribute is not permitted.
    pub fn check(&self) -> Result<()> {
        let content_type = self.content_type.as_deref().unwrap_or_default();
        if content_type.len() > MAX_CONTENT_TYPE_BYTES || content_type.contains(char::is_control) {
            return Err(StorageError::InvalidArgument(
                "`contentType` must have at most 255 bytes and no control characters.",
            ));
        }
        let size: usize = self.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        if size > MAX_METADATA_BYTES {
            return Err(StorageError::InvalidArgument("The names and values of `metadata` must have at most 2 KiB."));
        }
        if self.metadata.len() > MAX_METADATA_ENTRIES {
            return Err(StorageError::InvalidArgument("`metadata` must have at most 64 entries."));
        }
        if self.metadata.iter().any(|(name, value)| [name, value].into_iter().any(|it| it.contains(char::is_control))) {
            return Err(StorageError::InvalidArgument(
                "The names and values of `metadata` must not contain control characters.",
            ));
        }
        Ok(())
    }
}

impl Record {
    /// Returns the size of the blob in bytes, including its header.
    pub const fn blob_bytes(&self) -> u64 {
        self.offset.saturating_add(self.size)
    }

    /// Returns the object with this record.
    pub fn object(self, key: String) -> StoredObject {
        let Self { blob, size, uploaded, attributes, .. } = self;
        StoredObject { key, size, etag: etag(blob), attributes, uploaded }
    }
}

/// Returns the etag of the object with this blob.
pub fn etag(blob: Uuid) -> String {
    blob.simple().to_string()
}

impl Header {
    pub fn new(key: &Key, attributes: Attributes, uploaded: u64) -> Self {
        Self { key: key.as_str().to_owned(), uploaded, attributes }
    }

    /// Returns the beginning of the blob, up to its content.
    pub fn encode(&self) -> serde_json::Result<Vec<u8>> {
        let header = serde_json::to_vec(self)?;
        let length = u32::try_from(header.len()).map_err(serde::ser::Error::custom)?;
        Ok([MAGIC, &length.to_be_bytes(), &header].concat())
    }

    /// Reads the header from the beginning of a blob. Returns `None` if it is not a blob of this format.
    pub fn decode(mut start: Bytes) -> Option<Decoded> {
        let preamble = u64::try_from(PREAMBLE).ok()?;
        if start.len() < PREAMBLE {
            return Some(Decoded::Incomplete { needed: preamble });
        }
        if start.split_to(MAGIC.len()) != MAGIC {
            return None;
        }
        let length = start.get_u32();
        let offset = preamble + u64::from(length);
        match start.get(..usize::try_from(length).ok()?) {
            Some(header) => Some(Decoded::Header { header: serde_json::from_slice(header).ok()?, offset }),
            None => Some(Decoded::Incomplete { needed: offset }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_read_from_the_beginning_of_a_blob() {
        let key = Key::parse("a\u{1}/é".to_owned()).unwrap();
        let attributes = Attributes {
            content_type: Some("text/plain".to_owned()),
            metadata: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        };
        let header = Header::new(&key, attributes, 7);
        let encoded = header.encode().unwrap();
        let offset = encoded.len() as u64;
        let blob = Bytes::from([&encoded, &b"content"[..]].concat());
        let incomplete = |needed| Some(Decoded::Incomplete { needed });
        assert_eq!(Header::decode(blob.slice(..5)), incomplete(12));
        assert_eq!(Header::decode(blob.slice(..20)), incomplete(offset));
        assert_eq!(Header::decode(blob), Some(Decoded::Header { header, offset }));
        assert_eq!(Header::decode(Bytes::from_static(b"another kind of file")), None);
    }

    #[test]
    fn attributes_are_limited() {
        let attributes = |content_type: &str, metadata: usize| Attributes {
            content_type: Some(content_type.to_owned()),
            metadata: BTreeMap::from([("n".to_owned(), "v".repeat(metadata))]),
        };
        assert_eq!(attributes("text/html; charset=utf-8", 2047).check(), Ok(()));
        for refused in [attributes("a\nb", 0), attributes(&"x".repeat(256), 0), attributes("a/b", 2048)] {
            assert_eq!(refused.check().unwrap_err().code(), "invalid_argument");
        }
        let metadata = |entries: &[(&str, &str)]| Attributes {
            content_type: None,
            metadata: entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        };
        assert_eq!(metadata(&[("é \\\"", "🦀")]).check(), Ok(()));
        for refused in [metadata(&[("a", "b\u{1}")]), metadata(&[("a\n", "b")]), metadata(&[("a", "\u{85}")])] {
            assert_eq!(refused.check().unwrap_err().code(), "invalid_argument");
        }
        let numbered = |count: u8| Attributes {
            content_type: None,
            metadata: (0..count).map(|number| (number.to_string(), String::new())).collect(),
        };
        assert_eq!(numbered(64).check(), Ok(()));
        assert_eq!(numbered(65).check().unwrap_err().code(), "invalid_argument");
    }
}

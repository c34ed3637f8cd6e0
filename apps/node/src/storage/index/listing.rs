//! Listings: pages of objects and common prefixes, in the order of the bytes of their keys.

use std::ops::Bound;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use redb::ReadableTable;

use super::super::error::{Result, StorageError};
use super::super::object::{Record, StoredObject};
use super::tables::{WriteResult, decode};

/// No byte of UTF-8 is as large. Therefore, a text followed by this byte sorts after all keys that begin with the text.
const AFTER: u8 = 0xff;
/// A page ends when its entries have about this size in JSON, because the whole page is in memory until its receiver
/// has read it.
const MAX_PAGE_BYTES: usize = 1 << 20;
/// About the size of the names of an object's properties.
const ENTRY_BYTES: usize = 64;

/// The options of a listing.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// Only keys that begin with this string.
    pub prefix: String,
    /// Keys that contain this string after the prefix are grouped by the part up to and including it. If it is empty,
    /// keys are not grouped.
    pub delimiter: String,
    /// The largest number of objects and common prefixes.
    pub limit: usize,
    /// The last entry of the previous page.
    pub after: Option<Position>,
}

/// The last entry of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Position {
    Object(String),
    CommonPrefix(String),
}

/// A page.
#[derive(Debug, Default)]
pub struct Page {
    pub objects: Vec<StoredObject>,
    pub prefixes: Vec<String>,
    /// The position of the next page; `None` on the last page.
    pub next: Option<Position>,
}

impl Position {
    /// Returns the cursor, which is opaque to worker code.
    pub fn encode(&self) -> String {
        let (kind, text) = match self {
            Self::Object(key) => ("o", key),
            Self::CommonPrefix(prefix) => ("p", prefix),
        };
        URL_SAFE_NO_PAD.encode([kind, text].concat())
    }

    /// Decodes a cursor.
    ///
    /// # Errors
    /// Returns [`StorageError::InvalidArgument`] if the cursor is malformed.
    pub fn decode(cursor: &str) -> Result<Self> {
        let text = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|text| String::from_utf8(text).ok());
        let position = text.as_deref().and_then(|text| match text.split_at_checked(1)? {
            ("o", key) => Some(Self::Object(key.to_owned())),
            ("p", prefix) => Some(Self::CommonPrefix(prefix.to_owned())),
            _ => None,
        });
        position.ok_or(StorageError::InvalidArgument("`cursor` must be the cursor of an earlier `list`."))
    }

    /// Returns the bound of the first key after this position.
    fn bound(&self, base: &[u8]) -> Bound<Vec<u8>> {
        match self {
            Self::Object(key) => Bound::Excluded([base, key.as_bytes()].concat()),
            Self::CommonPrefix(prefix) => Bound::Included([base, prefix.as_bytes(), &[AFTER]].concat()),
        }
    }
}

/// Lists the objects whose keys in the table begin with `base`.
pub fn list(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    base: Vec<u8>,
    options: &ListOptions,
) -> WriteResult<Page> {
    let start = [&base, options.prefix.as_bytes()].concat();
    let end = [start.as_slice(), &[AFTER]].concat();
    let mut from = Bound::Included(start.clone());
    if let Some(after) = &options.after {
        let resumed = after.bound(&base);
        if key_of(&resumed) > start.as_slice() {
            from = resumed;
        }
    }
    let mut page = Page::default();
    let (mut last, mut bytes) = (None, 0);
    'seek: while key_of(&from) < end.as_slice() {
        let range = (from.as_ref().map(Vec::as_slice), Bound::Excluded(end.as_slice()));
        for entry in table.range::<&[u8]>(range)? {
            if page.objects.len() + page.prefixes.len() >= options.limit || bytes >= MAX_PAGE_BYTES {
                page.next = last;
                return Ok(page);
            }
            let (key, record) = entry?;
            let key = String::from_utf8_lossy(key.value().get(base.len()..).unwrap_or_default()).into_owned();
            if let Some(common) = common_prefix(&key, options) {
                // Skips the rest of the group, which may be large, with one seek.
                last = Some(Position::CommonPrefix(common.clone()));
                from = Bound::Included([base.as_slice(), common.as_bytes(), &[AFTER]].concat());
                bytes += json_bytes(&common);
                page.prefixes.push(common);
                continue 'seek;
            }
            last = Some(Position::Object(key.clone()));
            bytes += json_bytes(&key) + record.value().len();
            page.objects.push(decode::<Record>(record.value())?.object(key));
        }
        break;
    }
    Ok(page)
}

/// Returns the approximate size of an entry with this key in JSON, which escapes a control character with six bytes.
fn json_bytes(key: &str) -> usize {
    ENTRY_BYTES + key.len() + 5 * key.bytes().filter(u8::is_ascii_control).count()
}

/// Returns the beginning of a key up to the first delimiter after the prefix.
fn common_prefix(key: &str, options: &ListOptions) -> Option<String> {
    if options.delimiter.is_empty() {
        return None;
    }
    let rest = key.get(options.prefix.len()..)?;
    let found = rest.find(&options.delimiter)?;
    key.get(..options.prefix.len() + found + options.delimiter.len()).map(str::to_owned)
}

fn key_of(bound: &Bound<Vec<u8>>) -> &[u8] {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    }
}

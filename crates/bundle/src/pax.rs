//! The records of a pax extended header (POSIX.1-2017, pax, "pax Extended Header").
//!
//! The `tar` crate's iterator splits at newlines, which a value may hold; here the length rules, as POSIX has it.
//! Keys outside a short list are refused rather than ignored: each is one that another reader may act on.

use crate::Reason;

/// The `path` of a local header (`x`), if it gives one.
pub(crate) fn local(mut records: &[u8]) -> Result<Option<&[u8]>, Reason> {
    let mut path = None;
    while !records.is_empty() {
        let (key, value, rest) = record(records).ok_or(Reason::ExtensionMalformed)?;
        if key != "path" {
            harmless(key)?;
        } else if path.replace(value).is_some() {
            return Err(Reason::ExtensionMalformed);
        }
        records = rest;
    }
    Ok(path)
}

/// A global header (`g`) may hold what `git archive` puts there, the commit as a `comment`, and nothing else.
pub(crate) fn global(mut records: &[u8]) -> Result<(), Reason> {
    while !records.is_empty() {
        let (key, _, rest) = record(records).ok_or(Reason::ExtensionMalformed)?;
        if key != "comment" {
            harmless(key)?;
            return Err(Reason::ExtensionKey);
        }
        records = rest;
    }
    Ok(())
}

fn harmless(key: &str) -> Result<(), Reason> {
    match key {
        "mtime" | "atime" | "ctime" | "uid" | "gid" | "uname" | "gname" | "comment" => Ok(()),
        "size" => Err(Reason::SizeOverride),
        "linkpath" => Err(Reason::LinkTarget),
        "charset" | "hdrcharset" => Err(Reason::NameCharset),
        // star's way of writing sparse files.
        "SCHILY.realsize" | "SCHILY.filetype" | "SCHILY.offset" => Err(Reason::SparseFile),
        _ if key.starts_with("GNU.sparse.") => Err(Reason::SparseFile),
        _ if key.starts_with("SCHILY.") || key.starts_with("LIBARCHIVE.") => Ok(()),
        _ => Err(Reason::ExtensionKey),
    }
}

/// Splits `"<length> <key>=<value>\n"` off the front. The length counts the whole record, itself included.
fn record(records: &[u8]) -> Option<(&str, &[u8], &[u8])> {
    let (length, _) = split_at_byte(records, b' ')?;
    let (record, rest) = records.split_at_checked(decimal(length)?)?;
    let record = record.get(length.len() + 1..)?.strip_suffix(b"\n")?;
    let (key, value) = split_at_byte(record, b'=')?;
    let key = std::str::from_utf8(key).ok().filter(|key| !key.is_empty())?;
    Some((key, value, rest))
}

fn split_at_byte(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == separator)?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

/// Without sign and leading zeros, which `str::parse` would take.
fn decimal(digits: &[u8]) -> Option<usize> {
    let canonical = digits.iter().all(u8::is_ascii_digit) && !digits.starts_with(b"0");
    std::str::from_utf8(digits).ok().filter(|_| canonical)?.parse().ok()
}

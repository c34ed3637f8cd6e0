//! The records of a pax extended header (POSIX.1-2017, pax, "pax Extended Header").
//!
//! The `tar` crate splits records at newlines, but a value may contain newlines. This parser uses the record length, as
//! POSIX requires. It rejects unknown keys instead of ignoring them, because another reader may act on them.

use crate::Reason;

/// Parses a local header (`x`) and returns its `path`, if it has one.
pub(crate) fn parse_local(mut records: &[u8]) -> Result<Option<&[u8]>, Reason> {
    let mut path = None;
    while !records.is_empty() {
        let (key, value, rest) = split_record(records).ok_or(Reason::ExtensionMalformed)?;
        if key != "path" {
            check_key(key)?;
        } else if path.replace(value).is_some() {
            return Err(Reason::ExtensionMalformed);
        }
        records = rest;
    }
    Ok(path)
}

/// Parses a global header (`g`). Only `comment` is allowed, in which `git archive` stores the commit.
pub(crate) fn parse_global(mut records: &[u8]) -> Result<(), Reason> {
    while !records.is_empty() {
        let (key, _, rest) = split_record(records).ok_or(Reason::ExtensionMalformed)?;
        if key != "comment" {
            check_key(key)?;
            return Err(Reason::ExtensionKey);
        }
        records = rest;
    }
    Ok(())
}

fn check_key(key: &str) -> Result<(), Reason> {
    match key {
        "mtime" | "atime" | "ctime" | "uid" | "gid" | "uname" | "gname" | "comment" => Ok(()),
        "size" => Err(Reason::SizeOverride),
        "linkpath" => Err(Reason::LinkTarget),
        "charset" | "hdrcharset" => Err(Reason::NameCharset),
        // The keys that star uses for sparse files.
        "SCHILY.realsize" | "SCHILY.filetype" | "SCHILY.offset" => Err(Reason::SparseFile),
        _ if key.starts_with("GNU.sparse.") => Err(Reason::SparseFile),
        _ if key.starts_with("SCHILY.") || key.starts_with("LIBARCHIVE.") => Ok(()),
        _ => Err(Reason::ExtensionKey),
    }
}

/// Splits off the first record, `"<length> <key>=<value>\n"`. The length covers the whole record, including itself.
fn split_record(records: &[u8]) -> Option<(&str, &[u8], &[u8])> {
    let (length, _) = split_at_byte(records, b' ')?;
    let (record, rest) = records.split_at_checked(parse_length(length)?)?;
    let record = record.get(length.len() + 1..)?.strip_suffix(b"\n")?;
    let (key, value) = split_at_byte(record, b'=')?;
    let key = std::str::from_utf8(key).ok().filter(|key| !key.is_empty())?;
    Some((key, value, rest))
}

fn split_at_byte(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == separator)?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

/// Parses a decimal number without sign and leading zeros, which `str::parse` would accept.
fn parse_length(digits: &[u8]) -> Option<usize> {
    let canonical = digits.iter().all(u8::is_ascii_digit) && !digits.starts_with(b"0");
    std::str::from_utf8(digits).ok().filter(|_| canonical)?.parse().ok()
}

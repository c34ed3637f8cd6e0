//! Rules for the fields of each type.

use super::field::strings;
use super::{InvalidRecord, RecordType, caa, loc, reject, svcb};
use crate::name::labels::{self, ROOT};

/// Checks the fields of a record, in wire format.
///
/// The root is a valid target: it means that a domain accepts no mail (RFC 7505) or lacks a service (RFC 2782). Only NS
/// records must not name the root.
pub(super) fn check(kind: RecordType, parts: &[&[u8]]) -> Result<(), InvalidRecord> {
    match (kind, parts) {
        (RecordType::Caa, [flags, tag, value]) => caa::check(flags, tag, value),
        (RecordType::Cname | RecordType::Ptr, [target]) => name(target),
        (RecordType::Https | RecordType::Svcb, [priority, target, params]) => {
            name(target)?;
            svcb::check(*priority == [0, 0], params)
        }
        (RecordType::Loc, [location]) => loc::check(location),
        (RecordType::Ns, [server]) if *server == ROOT => reject("has the root as its nameserver"),
        (RecordType::Mx, [_, host]) | (RecordType::Ns, [host]) | (RecordType::Srv, [_, _, _, host]) => self::host(host),
        (RecordType::Naptr, [_, _, flags, _, expression, replacement]) => {
            name(replacement)?;
            naptr(flags, expression)
        }
        (RecordType::Sshfp, [_, kind, digest]) => self::digest("fingerprint", sshfp_length(kind), digest),
        (RecordType::Tlsa, [_, _, kind, digest]) => self::digest("hash", tlsa_length(kind), digest),
        (RecordType::Uri, [_, _, []]) => reject("has an empty target"),
        _ => Ok(()),
    }
}

fn name(wire: &[u8]) -> Result<(), InvalidRecord> {
    let text = labels::text(wire);
    if labels::is_address(&text) { reject(format!("has an IP address instead of a name: {text}")) } else { Ok(()) }
}

/// Checks a host name. Accepts underscores, which RFC 952 does not allow: the names of some mail servers contain them,
/// and nameservers accept them.
fn host(wire: &[u8]) -> Result<(), InvalidRecord> {
    name(wire)?;
    let is_host = |label: &[u8]| {
        let is_word = label.iter().all(|octet| octet.is_ascii_alphanumeric() || b"-_".contains(octet));
        is_word && !label.starts_with(b"-") && !label.ends_with(b"-")
    };
    if labels::labels(wire).all(is_host) {
        Ok(())
    } else {
        reject(format!("has an invalid host name: {}", labels::text(wire)))
    }
}

/// Returns the length of an SSHFP fingerprint of this type (RFC 4255 section 3.1.2, RFC 6594 section 4).
fn sshfp_length(kind: &[u8]) -> Option<usize> {
    match kind {
        [1] => Some(20),
        [2] => Some(32),
        _ => None,
    }
}

/// Returns the length of TLSA data with this matching type (RFC 6698 section 2.1.3).
fn tlsa_length(kind: &[u8]) -> Option<usize> {
    match kind {
        [1] => Some(32),
        [2] => Some(64),
        _ => None,
    }
}

fn digest(what: &str, length: Option<usize>, digest: &[u8]) -> Result<(), InvalidRecord> {
    match length {
        _ if digest.is_empty() => reject("has empty data"),
        Some(length) if length != digest.len() => {
            reject(format!("has a {what} of {} bytes; its type requires {length}", digest.len()))
        }
        _ => Ok(()),
    }
}

/// Checks the flags and the expression of a NAPTR record (RFC 3403 section 4.1 and RFC 3402 section 3.2).
fn naptr(flags: &[u8], expression: &[u8]) -> Result<(), InvalidRecord> {
    if !strings(flags).flatten().all(u8::is_ascii_alphanumeric) {
        return reject("has flags with other characters than letters and digits");
    }
    let Some((&delimiter, rest)) = strings(expression).next().and_then(<[u8]>::split_first) else { return Ok(()) };
    let mut count = 0;
    let mut is_escaped = false;
    let mut tail: &[u8] = &[];
    for (at, &octet) in rest.iter().enumerate() {
        if octet == delimiter && !is_escaped {
            count += 1;
            tail = rest.get(at + 1..).unwrap_or_default();
        }
        is_escaped = octet == b'\\' && !is_escaped;
    }
    let is_delimiter = !delimiter.is_ascii_digit() && !b"\\i\0".contains(&delimiter);
    if is_delimiter && count == 2 && (tail.is_empty() || tail == b"i") {
        return Ok(());
    }
    reject("has a regular expression that is not of the form !pattern!replacement!")
}

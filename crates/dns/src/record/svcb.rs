//! The parameters of service bindings (RFC 9460 section 2, RFC 9461, RFC 9540).
//!
//! In wire format, a parameter is a key, a length and a value. Keys are unique and ascending. Clients must not use a
//! record that breaks a rule. So all rules are checked in wire format, whatever the format of the input.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::field::strings;
use super::lexer::{Word, quote};
use super::{InvalidRecord, reject};

const MANDATORY: u16 = 0;
const ALPN: u16 = 1;
const NO_DEFAULT_ALPN: u16 = 2;
const PORT: u16 = 3;
const IPV4HINT: u16 = 4;
const ECH: u16 = 5;
const IPV6HINT: u16 = 6;
const DOHPATH: u16 = 7;
const OHTTP: u16 = 8;
/// The key that is reserved as "invalid key" (RFC 9460 section 14.3.2).
const INVALID: u16 = u16::MAX;

/// The names of keys by number. The last two names are accepted, but written as `key7` and `key8`, because Knot 3.2
/// does not know them.
const NAMES: [&str; 9] =
    ["mandatory", "alpn", "no-default-alpn", "port", "ipv4hint", "ech", "ipv6hint", "dohpath", "ohttp"];

/// Returns whether the octets are well-formed parameters. Does not check their values.
pub(super) fn is_well_formed(wire: &[u8]) -> bool {
    params(wire).map(|(_, value)| 4 + value.len()).sum::<usize>() == wire.len()
}

/// Parses `key`, `key=value` and `key="value"`, in any order.
pub(super) fn read(words: &[Word<'_>]) -> Result<Vec<u8>, InvalidRecord> {
    let mut params = BTreeMap::new();
    for word in words {
        let Some(text) = word.bare() else {
            return reject(format!("has an invalid parameter, which should look like port=443: {}", word.truncated()));
        };
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let inside = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        let value = Word { text: inside.unwrap_or(value), is_quoted: inside.is_some() }.octets();
        let Some(key) = key(name) else { return reject(format!("has an unknown parameter: {}", word.truncated())) };
        let value = value.and_then(|value| if name.starts_with("key") { Some(value) } else { encode(key, &value) });
        let Some(value) = value else {
            return reject(format!("has a parameter with an invalid value: {}", word.truncated()));
        };
        if params.insert(key, value).is_some() {
            return reject(format!("has the parameter {name} twice"));
        }
    }
    let mut wire = Vec::new();
    for (key, value) in params {
        let Ok(length) = u16::try_from(value.len()) else { return reject("has a parameter that is too long") };
        wire.extend(key.to_be_bytes());
        wire.extend(length.to_be_bytes());
        wire.extend(value);
    }
    Ok(wire)
}

pub(super) fn check(is_alias: bool, wire: &[u8]) -> Result<(), InvalidRecord> {
    if is_alias && !wire.is_empty() {
        return reject("has parameters, which an alias (priority 0) cannot have");
    }
    let keys: Vec<u16> = params(wire).map(|(key, _)| key).collect();
    if !keys.is_sorted_by(|one, next| one < next) {
        return reject("has unordered or duplicate parameters");
    }
    for (key, value) in params(wire) {
        if !is_valid_value(key, value) {
            return reject(format!("has an invalid value of the parameter {}", name(key)));
        }
        if key == MANDATORY
            && let Some(missing) = u16s(value).find(|key| keys.binary_search(key).is_err())
        {
            return reject(format!("has no parameter {}, which it lists as mandatory", name(missing)));
        }
    }
    if keys.contains(&NO_DEFAULT_ALPN) && !keys.contains(&ALPN) {
        return reject("has no-default-alpn without alpn");
    }
    Ok(())
}

pub(super) fn text(wire: &[u8]) -> Option<String> {
    let mut words = Vec::new();
    for (key, value) in params(wire) {
        let value = match key {
            MANDATORY => join(u16s(value).map(name)),
            ALPN => join(strings(value).map(escape_item)),
            PORT => u16::from_be_bytes(value.try_into().ok()?).to_string().into_bytes(),
            IPV4HINT => join(value.as_chunks().0.iter().map(|octets: &[u8; 4]| Ipv4Addr::from(*octets).to_string())),
            IPV6HINT => join(value.as_chunks().0.iter().map(|octets: &[u8; 16]| Ipv6Addr::from(*octets).to_string())),
            ECH => BASE64.encode(value).into_bytes(),
            _ => value.to_vec(),
        };
        words.push(match value.as_slice() {
            [] => name(key),
            plain if plain.iter().all(is_plain) => format!("{}={}", name(key), plain.escape_ascii()),
            other => format!("{}={}", name(key), quote(other)),
        });
    }
    Some(words.join(" "))
}

/// Encodes an unescaped value in wire format.
fn encode(key: u16, value: &[u8]) -> Option<Vec<u8>> {
    let text = || std::str::from_utf8(value).ok();
    match key {
        MANDATORY => {
            let mut keys = text()?.split(',').map(self::key).collect::<Option<Vec<_>>>()?;
            keys.sort_unstable();
            Some(keys.into_iter().flat_map(u16::to_be_bytes).collect())
        }
        ALPN => parse_list(value)?.into_iter().try_fold(Vec::new(), |mut wire, id| {
            wire.push(u8::try_from(id.len()).ok()?);
            wire.extend(id);
            Some(wire)
        }),
        PORT => {
            let digits = text()?;
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| digits.parse::<u16>().ok())?.map(|port| port.to_be_bytes().to_vec())
        }
        IPV4HINT => {
            let addresses = text()?.split(',').map(|it| it.parse::<Ipv4Addr>().ok()).collect::<Option<Vec<_>>>()?;
            Some(addresses.iter().flat_map(Ipv4Addr::octets).collect())
        }
        IPV6HINT => {
            let addresses = text()?.split(',').map(|it| it.parse::<Ipv6Addr>().ok()).collect::<Option<Vec<_>>>()?;
            Some(addresses.iter().flat_map(Ipv6Addr::octets).collect())
        }
        ECH => BASE64.decode(value).ok(),
        _ => Some(value.to_vec()),
    }
}

fn is_valid_value(key: u16, value: &[u8]) -> bool {
    match key {
        MANDATORY => {
            let keys: Vec<u16> = u16s(value).collect();
            let ascends = keys.is_sorted_by(|one, next| one < next);
            !keys.is_empty() && value.len().is_multiple_of(2) && ascends && !keys.contains(&MANDATORY)
        }
        ALPN => {
            let whole = strings(value).map(|id| 1 + id.len()).sum::<usize>() == value.len();
            whole && !value.is_empty() && strings(value).all(|id| !id.is_empty())
        }
        NO_DEFAULT_ALPN | OHTTP => value.is_empty(),
        PORT => value.len() == 2,
        IPV4HINT => !value.is_empty() && value.len().is_multiple_of(4),
        IPV6HINT => !value.is_empty() && value.len().is_multiple_of(16),
        // The value is a list that begins with its length (RFC 9849 section 4).
        ECH => value
            .split_first_chunk()
            .is_some_and(|(length, list)| !list.is_empty() && usize::from(u16::from_be_bytes(*length)) == list.len()),
        // RFC 9461 section 5: the value is a relative URI template with the variable "dns".
        DOHPATH => value.starts_with(b"/") && std::str::from_utf8(value).is_ok_and(has_dns_variable),
        INVALID => false,
        _ => true,
    }
}

fn has_dns_variable(template: &str) -> bool {
    let expressions = template.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    let mut names = expressions.flat_map(|(expression, _)| expression.trim_start_matches(['?', '&']).split(','));
    names.any(|name| name == "dns")
}

/// Returns the complete keys and values. Stops at an incomplete one.
fn params(wire: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = wire;
    std::iter::from_fn(move || {
        let (key, tail) = rest.split_first_chunk()?;
        let (length, tail) = tail.split_first_chunk()?;
        let (value, tail) = tail.split_at_checked(u16::from_be_bytes(*length).into())?;
        rest = tail;
        Some((u16::from_be_bytes(*key), value))
    })
}

fn u16s(wire: &[u8]) -> impl Iterator<Item = u16> {
    wire.as_chunks().0.iter().map(|octets| u16::from_be_bytes(*octets))
}

fn key(name: &str) -> Option<u16> {
    if let Some(at) = NAMES.iter().position(|known| *known == name) {
        return u16::try_from(at).ok();
    }
    let digits = name.strip_prefix("key")?;
    let key: u16 = digits.parse().ok()?;
    (key.to_string() == digits).then_some(key)
}

fn name(key: u16) -> String {
    let known = NAMES.get(usize::from(key)).filter(|_| key < DOHPATH);
    known.map_or_else(|| format!("key{key}"), ToString::to_string)
}

/// Splits a list into items, which have a second level of escapes for commas and backslashes (RFC 9460 appendix A.1).
fn parse_list(value: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut items, mut item) = (Vec::new(), Vec::new());
    let mut octets = value.iter();
    while let Some(octet) = octets.next() {
        match octet {
            b',' => items.push(std::mem::take(&mut item)),
            b'\\' => item.push(*octets.next().filter(|octet| b",\\".contains(octet))?),
            _ => item.push(*octet),
        }
    }
    items.push(item);
    Some(items)
}

fn escape_item(item: &[u8]) -> Vec<u8> {
    let escaped = item.iter().flat_map(|octet| {
        let backslash = b",\\".contains(octet).then_some(b'\\');
        backslash.into_iter().chain([*octet])
    });
    escaped.collect()
}

fn join<T: AsRef<[u8]>>(items: impl Iterator<Item = T>) -> Vec<u8> {
    items.map(|item| item.as_ref().to_vec()).collect::<Vec<_>>().join(&b',')
}

/// Returns whether the octet needs no quotation marks.
fn is_plain(octet: &u8) -> bool {
    octet.is_ascii_alphanumeric() || b"-._:/+=,".contains(octet)
}

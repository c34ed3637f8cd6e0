//! Content codings, RFC 9110 8.4 and 12.5.3.

use actix_web::http::header::{ACCEPT_ENCODING, HeaderMap};

/// A content coding. The order is the node's preference between codings of the same quality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Coding {
    /// Uncompressed.
    Identity,
    Gzip,
    Brotli,
}

/// The default quality, in thousandths.
const MAX_QUALITY: u16 = 1000;

impl Coding {
    /// Returns the name in `Content-Encoding`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Brotli => "br",
        }
    }

    /// Chooses among the `available` codings by `Accept-Encoding`; [`Self::Identity`] without that header. Returns
    /// `None` if the header excludes all of them.
    pub fn choose(headers: &HeaderMap, available: impl Iterator<Item = Self>) -> Option<Self> {
        if !headers.contains_key(ACCEPT_ENCODING) {
            return Some(Self::Identity);
        }
        let lists = headers.get_all(ACCEPT_ENCODING).filter_map(|value| value.to_str().ok());
        let items: Vec<(&str, u16)> = lists.flat_map(|list| list.split(',')).filter_map(item).collect();
        let rated = available.map(|coding| (coding.quality(&items), coding));
        rated.filter(|(quality, _)| *quality > 0).max().map(|(_, coding)| coding)
    }

    /// Returns the quality of this coding; `*` applies to codings that are not listed. Identity is acceptable unless it
    /// is excluded, and ranks below all listed codings.
    fn quality(self, items: &[(&str, u16)]) -> u16 {
        let (mut listed, mut wildcard) = (None, None);
        for &(name, quality) in items {
            if name.eq_ignore_ascii_case(self.name()) || (self == Self::Gzip && name.eq_ignore_ascii_case("x-gzip")) {
                listed = listed.max(Some(quality));
            } else if name == "*" {
                wildcard = wildcard.max(Some(quality));
            }
        }
        let default = if self == Self::Identity { 1 } else { 0 };
        listed.or(wildcard).unwrap_or(default)
    }
}

/// Parses a coding and its quality. Returns `None` for a malformed item.
fn item(text: &str) -> Option<(&str, u16)> {
    let (name, parameter) = match text.split_once(';') {
        Some((name, parameter)) => (name, Some(parameter.trim())),
        None => (text, None),
    };
    let quality = match parameter {
        None => MAX_QUALITY,
        Some(parameter) => thousandths(parameter.strip_prefix("q=").or_else(|| parameter.strip_prefix("Q="))?)?,
    };
    Some((name.trim(), quality))
}

/// Parses a quality such as `0.8` to 800, with at most three decimals.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 3 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    match whole {
        "0" => format!("{fraction:0<3}").parse().ok(),
        "1" => fraction.bytes().all(|digit| digit == b'0').then_some(MAX_QUALITY),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    fn choose(accepted: &[&'static str], available: &[Coding]) -> Option<Coding> {
        let lines = accepted.iter().map(|line| (ACCEPT_ENCODING, HeaderValue::from_static(line)));
        Coding::choose(&HeaderMap::from_iter(lines), available.iter().copied())
    }

    #[test]
    fn accepted_coding_with_the_highest_quality_is_chosen() {
        use Coding::{Brotli, Gzip, Identity};
        for (accepted, chosen) in [
            (&[][..], Some(Identity)),
            (&[""], Some(Identity)),
            (&["gzip"], Some(Gzip)),
            (&["GZip"], Some(Gzip)),
            (&["x-gzip"], Some(Gzip)),
            (&["gzip, deflate, br, zstd"], Some(Brotli)),
            (&["gzip", "br"], Some(Brotli)),
            (&["br;q=0.5, gzip;q=0.8"], Some(Gzip)),
            (&["br ; q=0.500 , gzip;Q=0.5"], Some(Brotli)),
            (&["gzip;q=0.5"], Some(Gzip)),
            (&["gzip;q=0.5, identity"], Some(Identity)),
            (&["gzip;q=0, br;q=0"], Some(Identity)),
            (&["gzip;q=0.000"], Some(Identity)),
            (&["deflate, zstd"], Some(Identity)),
            (&["*"], Some(Brotli)),
            (&["*, br;q=0"], Some(Gzip)),
            (&["*;q=0.5, gzip"], Some(Gzip)),
            (&["identity;q=0, *;q=0.1"], Some(Brotli)),
            (&["identity;q=0, gzip"], Some(Gzip)),
            (&["identity;q=0"], None),
            (&["*;q=0"], None),
            (&["*;q=0, identity;q=0.1"], Some(Identity)),
            (&["gzip;q=2, gzip;q=x, br;q=0.1234, br;level=1"], Some(Identity)),
        ] {
            assert_eq!(choose(accepted, &[Identity, Gzip, Brotli]), chosen, "{accepted:?}");
        }
        assert_eq!(choose(&["br, gzip;q=0.1"], &[Identity, Gzip]), Some(Gzip));
        assert_eq!(choose(&["br, gzip"], &[Identity]), Some(Identity));
        assert_eq!(choose(&["br, gzip, identity;q=0"], &[Identity]), None);
    }
}

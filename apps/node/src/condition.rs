//! Conditional requests, RFC 9110 13. Assets have entity tags and no modification dates, so conditions on dates are
//! ignored.

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, IF_RANGE};

/// The result of evaluating a request's conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The conditions hold: the request is executed.
    Holds,
    /// The visitor has the current content: 304.
    NotModified,
    /// A precondition does not hold: 412.
    Failed,
}

/// Evaluates the conditions against this strong tag, in the order of RFC 9110 section 13.2.2.
pub fn evaluate(headers: &HeaderMap, etag: &HeaderValue) -> Outcome {
    if headers.contains_key(IF_MATCH) && !tags(headers, IF_MATCH).any(|tag| tag == b"*" || tag == etag.as_bytes()) {
        return Outcome::Failed;
    }
    let weak = |tag: &[u8]| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == etag.as_bytes();
    if tags(headers, IF_NONE_MATCH).any(weak) { Outcome::NotModified } else { Outcome::Holds }
}

/// Returns whether `If-Range` permits a range of the content with this tag. The visitor combines the range with earlier
/// parts, so those must have the same tag.
pub fn allows_range(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    headers.get(IF_RANGE).is_none_or(|sent| sent == etag)
}

/// Returns the tags in a header. The node's tags contain no comma, so splitting a foreign tag at its commas cannot
/// produce a match.
fn tags(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    headers.get_all(name).flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG: HeaderValue = HeaderValue::from_static("\"abc\"");

    fn evaluate(sent: &[(HeaderName, &'static str)]) -> Outcome {
        let lines = sent.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        super::evaluate(&HeaderMap::from_iter(lines), &ETAG)
    }

    #[test]
    fn matching_if_none_match_is_not_modified() {
        let lists = [&["\"abc\""][..], &["W/\"abc\""], &["*"], &["\"x\", \"abc\""], &["\"x\"", "\"abc\" ,\"y\""]];
        for list in lists {
            let sent: Vec<_> = list.iter().map(|value| (IF_NONE_MATCH, *value)).collect();
            assert_eq!(evaluate(&sent), Outcome::NotModified, "{list:?}");
        }
        for other in ["abc", "\"abcd\"", "\"x\"", "", "\"abc-br\"", "w/\"abc\""] {
            assert_eq!(evaluate(&[(IF_NONE_MATCH, other)]), Outcome::Holds, "{other}");
        }
        assert_eq!(evaluate(&[]), Outcome::Holds);
    }

    #[test]
    fn if_match_is_evaluated_before_if_none_match() {
        for (sent, outcome) in [
            (&[(IF_MATCH, "\"abc\"")][..], Outcome::Holds),
            (&[(IF_MATCH, "*")], Outcome::Holds),
            (&[(IF_MATCH, "\"x\", \"abc\"")], Outcome::Holds),
            (&[(IF_MATCH, "W/\"abc\"")], Outcome::Failed),
            (&[(IF_MATCH, "\"x\"")], Outcome::Failed),
            (&[(IF_MATCH, "")], Outcome::Failed),
            (&[(IF_MATCH, "\"x\""), (IF_NONE_MATCH, "*")], Outcome::Failed),
            (&[(IF_MATCH, "*"), (IF_NONE_MATCH, "\"abc\"")], Outcome::NotModified),
        ] {
            assert_eq!(evaluate(sent), outcome, "{sent:?}");
        }
    }

    #[test]
    fn if_range_requires_the_same_strong_tag() {
        for (sent, allowed) in
            [("\"abc\"", true), ("W/\"abc\"", false), ("\"x\"", false), ("Sat, 29 Oct 1994 19:43:31 GMT", false)]
        {
            let headers = HeaderMap::from_iter([(IF_RANGE, HeaderValue::from_static(sent))]);
            assert_eq!(allows_range(&headers, &ETAG), allowed, "{sent}");
        }
        assert!(allows_range(&HeaderMap::new(), &ETAG));
    }
}

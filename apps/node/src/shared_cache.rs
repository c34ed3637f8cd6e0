//! Shared caches, such as a proxy of an organization or a CDN (RFC 9111).

use std::iter;

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, HeaderName, HeaderValue};

/// Prohibits that a shared cache stores the response, whatever its code says. The other directives stay.
pub fn make_private(response: &mut HttpResponse) {
    let headers = response.headers_mut();
    let targeted: Vec<HeaderName> = headers.keys().filter(|name| is_targeted(name)).cloned().collect();
    for name in targeted {
        headers.remove(name);
    }
    let values = headers.get_all(CACHE_CONTROL).filter_map(|value| value.to_str().ok());
    let is_named = |directive: &str, names: &[&str]| {
        let name = directive.split('=').next().unwrap_or_default().trim_end();
        names.iter().any(|other| name.eq_ignore_ascii_case(other))
    };
    // With a value, `private` names only some header fields.
    let is_partly_private = |it: &str| is_named(it, &["private"]) && !it.eq_ignore_ascii_case("private");
    let is_kept = |it: &&str| !is_named(it, &["public", "s-maxage"]) && !is_partly_private(it);
    let mut kept: Vec<&str> = values.flat_map(directives).filter(is_kept).collect();
    if !kept.iter().any(|it| is_named(it, &["private", "no-store"])) {
        kept = iter::once("private").chain(kept).collect();
    }
    let value = HeaderValue::from_str(&kept.join(", ")).unwrap_or(HeaderValue::from_static("private"));
    headers.insert(CACHE_CONTROL, value);
}

/// Makes the response private unless its code says otherwise, and returns true. Returns false for a response that is meant
/// for shared caches, which may store every response that does not prohibit it.
pub fn make_private_by_default(response: &mut HttpResponse) -> bool {
    let headers = response.headers_mut();
    if headers.keys().any(is_targeted) {
        return false;
    }
    let values: Result<Vec<_>, _> = headers.get_all(CACHE_CONTROL).map(HeaderValue::to_str).collect();
    let Ok(values) = values else { return false };
    let directives: Vec<String> =
        values.iter().flat_map(|list| directives(list)).map(str::to_ascii_lowercase).collect();
    let has = |is_meant: fn(&str, &str) -> bool| {
        directives.iter().map(|it| it.split_once('=').unwrap_or((it, ""))).any(|(name, value)| is_meant(name, value))
    };
    // With a value, `private` names only some header fields.
    if has(|name, value| matches!(name, "public" | "s-maxage") || name == "private" && !value.is_empty()) {
        return false;
    }
    if has(|name, _| matches!(name, "private" | "no-store")) {
        return true;
    }
    if has(|name, value| name == "immutable" || name == "max-age" && value.trim_matches('"').parse() != Ok(0_u64)) {
        return false;
    }
    let value = values.into_iter().chain(["private"]).collect::<Vec<_>>().join(", ");
    HeaderValue::from_str(&value).is_ok_and(|value| {
        headers.insert(CACHE_CONTROL, value);
        true
    })
}

/// Returns the directives of a value of `Cache-Control`. Their own values may contain commas between quotes.
fn directives(list: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    let is_end = move |c: char| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    };
    list.split(is_end).map(str::trim).filter(|directive| !directive.is_empty())
}

/// Returns whether a header is a targeted field: its caches ignore `Cache-Control` (RFC 9213 section 2.2).
fn is_targeted(name: &HeaderName) -> bool {
    name.as_str().ends_with("-cache-control") || name == "surrogate-control"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_response_has_no_directive_for_shared_caches() {
        for (sent, expected) in [
            (&[][..], "private"),
            (&["public, max-age=0, must-revalidate"], "private, max-age=0, must-revalidate"),
            (&["Public", "S-MaxAge=60, max-age=5"], "private, max-age=5"),
            (&["max-age=5, Private"], "max-age=5, Private"),
            (&["no-store, public"], "no-store"),
            (&["private=\"set-cookie, x-user\", max-age=5"], "private, max-age=5"),
        ] {
            let mut response = HttpResponse::Ok();
            for value in sent {
                response.append_header((CACHE_CONTROL, *value));
            }
            let response = response.insert_header(("cdn-cache-control", "max-age=60"));
            let mut response = response.insert_header(("surrogate-control", "max-age=60")).finish();
            make_private(&mut response);
            assert!(make_private_by_default(&mut response), "{sent:?}");
            let headers = response.headers();
            assert_eq!(headers.get_all(CACHE_CONTROL).collect::<Vec<_>>(), [expected], "{sent:?}");
            assert_eq!(headers.len(), 1, "{headers:?}");
        }
    }
}

//! The cookies of a request, read in the same way by the gateway and the nodes.

/// Returns the values of the cookies named `name` in one `Cookie` header, in the order of the header.
///
/// Names and values are the bytes that the browser sent (RFC 6265 section 4.2.1), without percent-decoding or quotes.
/// Browsers compare names in the same way: only the host itself can set a cookie whose name begins with `__Host-`, but
/// any sibling host can set one named `%5F%5FHost-…`. Other cookies in the header may contain any bytes.
pub fn cookie_values<'header>(header: &'header [u8], name: &str) -> impl Iterator<Item = &'header [u8]> {
    header.split(|byte| *byte == b';').filter_map(|cookie| {
        // Only spaces and tabs can surround a cookie. Other whitespace is part of its name or value.
        let start = cookie.iter().position(|byte| !matches!(byte, b' ' | b'\t'))?;
        let end = cookie.iter().rposition(|byte| !matches!(byte, b' ' | b'\t'))?;
        cookie.get(start..=end)?.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_raw_bytes() {
        let values = |header: &'static [u8]| cookie_values(header, "__Host-a").collect::<Vec<_>>();
        let found: [(&[u8], &[&[u8]]); 8] = [
            (b"__Host-a=1", &[b"1"]),
            (b"b=2; __Host-a=1=%31 ;\t__Host-a=\"2\"", &[b"1=%31", b"\"2\""]),
            (b"b;;=; __Host-a=;c=__Host-a=1", &[b""]),
            (b"\xff\xfe=\xc3(; __Host-a=1; d", &[b"1"]),
            (b"__Host-a=\xff", &[b"\xff"]),
            (b"__Host-a;__Host-ab=1;__Host-=1;a=1", &[]),
            (b"%5F%5FHost-a=1; %5f_Host-a=1; __host-a=1; __HOST-a=1; __Host-%61=1", &[]),
            (b"\x0c__Host-a=1; \xc2\xa0__Host-a=1; =__Host-a=1; __Host-a =1; \"__Host-a\"=1", &[]),
        ];
        for (header, expected) in found {
            assert_eq!(values(header), expected, "{}", header.escape_ascii());
        }
    }
}

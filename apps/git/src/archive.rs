//! Checks a request of `git archive --remote` before git reads it.

use std::io;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};

/// The allowed options without a value, and those whose value is the next argument. A value that begins with `-` must be
/// an allowed option too.
const OPTIONS: [&str; 8] = ["--", "-v", "--verbose", "-l", "--list", "--format", "--prefix", "--mtime"];
/// The maximum length of the request, in bytes.
const MAX_REQUEST_BYTES: usize = 64 * 1024;

/// Reads the arguments of `git archive`, up to the flush packet. Returns `None` if an argument is not allowed. Only a
/// few options are allowed: other options read files of the node, and git-upload-archive(1) does not restrict them.
pub async fn read_request(input: &mut (impl Stream<Item = io::Result<Bytes>> + Unpin)) -> Option<Bytes> {
    let mut request = BytesMut::new();
    while request.len() <= MAX_REQUEST_BYTES {
        if is_complete(&request)? {
            return Some(request.freeze());
        }
        request.extend_from_slice(&input.next().await?.ok()?);
    }
    None
}

/// Returns whether the packets end with a flush packet. Returns `None` if a packet is malformed or contains an argument
/// that is not allowed.
fn is_complete(mut packets: &[u8]) -> Option<bool> {
    while let Some((length, rest)) = packets.split_at_checked(4) {
        let length = usize::from_str_radix(str::from_utf8(length).ok()?, 16).ok()?;
        let Some(length) = length.checked_sub(4) else { return (length == 0 && rest.is_empty()).then_some(true) };
        let Some((packet, rest)) = rest.split_at_checked(length) else { return Some(false) };
        let argument = str::from_utf8(packet).ok()?.strip_prefix("argument ")?.trim_end_matches('\n');
        let is_level = argument.len() == 2 && argument.ends_with(|last: char| last.is_ascii_digit());
        let is_allowed = !argument.starts_with('-')
            || is_level
            || OPTIONS.contains(&argument)
            || ["--format=", "--prefix=", "--mtime="].iter().any(|option| argument.starts_with(option));
        if !is_allowed {
            return None;
        }
        packets = rest;
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_have_harmless_arguments() {
        let request = |arguments: &[&str]| {
            let packets: String = arguments.iter().map(|it| format!("{:04x}argument {it}\n", it.len() + 14)).collect();
            is_complete(format!("{packets}0000").as_bytes())
        };
        assert_eq!(request(&["--format=tar", "--prefix=a/", "-9", "HEAD", "--", "src"]), Some(true));
        assert_eq!(request(&["--prefix", "a/", "--format", "tar", "--mtime", "2026-01-01", "-v", "HEAD"]), Some(true));
        assert_eq!((request(&["--list"]), request(&["-l"])), (Some(true), Some(true)));
        assert_eq!(request(&["--prefix", "--output=/x", "HEAD"]), None);
        for argument in
            ["--add-file=/etc/passwd", "--add-virtual-file=a:b", "--output=/x", "--remote=x", "-o", "--exec=x"]
        {
            assert_eq!(request(&["--format=tar", argument, "HEAD"]), None, "{argument}");
        }
        assert_eq!(is_complete(b"0012argument"), Some(false));
        assert_eq!(is_complete(b"zzzz"), None);
    }
}

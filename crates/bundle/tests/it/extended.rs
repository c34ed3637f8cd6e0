//! Extended headers that are malicious or malformed.

use bundle::Reason::{self, *};

use crate::hostile::{Case, check, valid_with};
use crate::support::{Tar, record};

const PAX: Option<&str> = Some("PaxHeaders/it");
const LONG_NAME: Option<&str> = Some("./@LongLink");
const GLOBAL: Option<&str> = Some("pax_global_header");

/// Returns an archive with this extended header before a valid file.
fn before_a_file(kind: u8, name: Option<&str>, content: &[u8]) -> Vec<u8> {
    valid_with(|tar| tar.entry(name.unwrap().as_bytes(), kind, content).file("assets/a", "x"))
}

fn pax(content: &[u8], reason: Reason) -> Case {
    (before_a_file(b'x', PAX, content), reason, PAX)
}

#[test]
fn keys_other_than_the_name_are_rejected() {
    let key = |key, reason| pax(&record(key, b"0"), reason);
    check([
        key("size", SizeOverride),
        key("linkpath", LinkTarget),
        key("hdrcharset", NameCharset),
        key("charset", NameCharset),
        key("GNU.sparse.major", SparseFile),
        key("GNU.sparse.name", SparseFile),
        key("SCHILY.realsize", SparseFile),
        key("SCHILY.filetype", SparseFile),
        key("Path", ExtensionKey),
        key("path ", ExtensionKey),
        key("GNU.volume.label", ExtensionKey),
        key("", ExtensionMalformed),
    ]);
}

#[test]
fn names_in_extended_headers_are_validated() {
    let path = |name: &[u8], reason, display| (before_a_file(b'x', PAX, &record("path", name)), reason, Some(display));
    let long = |name: &[u8], reason, display| (before_a_file(b'L', LONG_NAME, name), reason, Some(display));
    check([
        path(b"../b", DotSegment, "../b"),
        path(b"", EmptySegment, ""),
        path(b"assets/a\0b", ControlCharacter, "assets/a\u{fffd}b"),
        path(b"assets/a\0", ControlCharacter, "assets/a\u{fffd}"),
        path(b"assets/a\nb", ControlCharacter, "assets/a\u{fffd}b"),
        path(b"assets/\xff", NameNotUtf8, "assets/\u{fffd}"),
        long(b"/etc/passwd\0", AbsolutePath, "/etc/passwd"),
        long(b"assets/a\0b\0", ControlCharacter, "assets/a\u{fffd}b"),
        long(b"assets/a\0\0", ControlCharacter, "assets/a\u{fffd}"),
        long(b"\0", EmptySegment, ""),
        long(b"", EmptySegment, ""),
    ]);
}

#[test]
fn malformed_records_are_rejected() {
    let twice = [record("path", b"assets/b"), record("path", b"assets/c")].concat();
    let zero_padded = [record("path", b"assets/b"), vec![0; 8]].concat();
    let malformed = |content| pax(content, ExtensionMalformed);
    check([
        malformed(&twice),
        malformed(&zero_padded),
        malformed(b"8 uid=1\nx"),
        malformed(b"9 uid=1\n"),
        malformed(b"7 uid=1\n"),
        malformed(b"09 uid=1\n"),
        malformed(b"+9 uid=1\n"),
        malformed(b"-9 uid=1\n"),
        malformed(b"0 uid=1\n"),
        malformed(b" uid=1\n"),
        malformed(b"8 uid 1\n"),
        malformed(b"2 uid=1\n"),
        malformed(b"8 uid=12"),
        malformed(b"8\tuid=1\n"),
        malformed(b"99999999999999999999999 uid=1\n"),
        pax(&record("comment", &[b'x'; 1 << 16]), ExtensionTooLarge),
    ]);
}

#[test]
fn misplaced_extended_headers_are_rejected() {
    let before =
        |shape: fn(Tar) -> Tar, entry| (valid_with(|tar| shape(tar).file("assets/a", "")), ExtensionMisplaced, entry);
    let at_the_end = |shape: fn(Tar) -> Tar, entry| (valid_with(shape), ExtensionMisplaced, entry);
    check([
        before(|tar| tar.pax(&[]).pax(&[]), PAX),
        before(|tar| tar.pax(&[]).long_name("assets/b"), LONG_NAME),
        before(|tar| tar.long_name("assets/b").pax(&[]), Some("assets/b")),
        before(|tar| tar.long_name("assets/b").long_name("assets/c"), Some("assets/b")),
        before(|tar| tar.entry(b"pax_global_header", b'g', b""), GLOBAL),
        at_the_end(|tar| tar.pax(&[]), PAX),
        at_the_end(|tar| tar.long_name("assets/b"), LONG_NAME),
    ]);
}

#[test]
fn invalid_global_headers_are_rejected() {
    let global = |tar: Tar, records: &[u8]| tar.entry(b"pax_global_header", b'g', records);
    let first =
        |records: &[u8], reason| (global(Tar::default(), records).bytes(&Tar::valid().0).gzip(), reason, GLOBAL);
    let comment = record("comment", b"0123456789abcdef");
    let twice = global(global(Tar::default(), &comment), &comment).bytes(&Tar::valid().0);
    check([
        first(&record("path", b"assets/a"), ExtensionKey),
        first(&record("mtime", b"0"), ExtensionKey),
        first(&[comment.clone(), record("uid", b"0")].concat(), ExtensionKey),
        first(&record("size", b"0"), SizeOverride),
        first(b"nonsense", ExtensionMalformed),
        (twice.gzip(), ExtensionMisplaced, GLOBAL),
    ]);
}

//! Invalid archives, each with the expected reason and entry name.

use bundle::MAX_NAME_BYTES;
use bundle::Reason::{self, *};

use crate::support::{Tar, gzip, header, malformed_header, read_invalid};

/// An upload, the expected reason, and the expected entry name.
pub type Case = (Vec<u8>, Reason, Option<&'static str>);

pub fn check(cases: impl IntoIterator<Item = Case>) {
    for (at, (bundle, reason, entry)) in cases.into_iter().enumerate() {
        assert_eq!(read_invalid(&bundle), (reason, entry.map(str::to_owned)), "case {at}");
    }
}

/// Returns a valid bundle with additional content.
pub fn valid_with(more: impl FnOnce(Tar) -> Tar) -> Vec<u8> {
    more(Tar::valid()).gzip()
}

#[test]
fn invalid_names_are_rejected() {
    let file = |name: &[u8], reason, entry| (valid_with(|tar| tar.entry(name, b'0', b"x")), reason, Some(entry));
    let directory = |name: &[u8], reason, entry| (valid_with(|tar| tar.entry(name, b'5', b"")), reason, Some(entry));
    check([
        file(b"/assets/a", AbsolutePath, "/assets/a"),
        file(b".//assets/a", AbsolutePath, "/assets/a"),
        file(b"../assets/a", DotSegment, "../assets/a"),
        file(b"assets/../../a", DotSegment, "assets/../../a"),
        file(b"assets/..", DotSegment, "assets/.."),
        file(b"assets/./a", DotSegment, "assets/./a"),
        file(b"././assets/a", DotSegment, "./assets/a"),
        file(b".", DotSegment, "."),
        file(b"assets//a", EmptySegment, "assets//a"),
        file(b"assets/a/", EmptySegment, "assets/a/"),
        file(b"", EmptySegment, ""),
        directory(b"", EmptySegment, ""),
        directory(b"assets//", EmptySegment, "assets//"),
        directory(b"assets/../", DotSegment, "assets/../"),
        directory(b"/", EmptySegment, "/"),
        file(b"assets\\a", Backslash, "assets\\a"),
        file(b"assets/a\nb", ControlCharacter, "assets/a\u{fffd}b"),
        file(b"assets/a\x7f", ControlCharacter, "assets/a\u{fffd}"),
        file(b"assets/\xc2\x85", ControlCharacter, "assets/\u{fffd}"),
        file(b"assets/\xff", NameNotUtf8, "assets/\u{fffd}"),
        file(b"README.md", UnexpectedPath, "README.md"),
        file(b"Assets/a", UnexpectedPath, "Assets/a"),
        file(b"SVC.JSON", UnexpectedPath, "SVC.JSON"),
        file(b"assets", UnexpectedPath, "assets"),
        file(b"assets-old/a", UnexpectedPath, "assets-old/a"),
        file(b"C:/assets/a", UnexpectedPath, "C:/assets/a"),
        directory(b"svc.json/", UnexpectedPath, "svc.json/"),
        directory(b"node_modules/", UnexpectedPath, "node_modules/"),
        file(b"svc.json/a", UnexpectedPath, "svc.json/a"),
    ]);
}

#[test]
fn conflicting_names_are_rejected() {
    let files = |names: &[&str]| valid_with(|tar| names.iter().fold(tar, |tar, name| tar.file(name, "")));
    check([
        (files(&["svc.json"]), Duplicate, Some("svc.json")),
        (files(&["assets/a", "./assets/a"]), Duplicate, Some("assets/a")),
        (valid_with(|tar| tar.directory("assets/").directory("assets")), Duplicate, Some("assets")),
        (files(&["assets/a", "assets/b", "assets/A"]), CaseCollision, Some("assets/A")),
        (files(&["assets/É", "assets/é"]), CaseCollision, Some("assets/é")),
        (files(&["assets/Maße", "assets/MASSE"]), CaseCollision, Some("assets/MASSE")),
        (files(&["assets/ΟΔΟΣ", "assets/οδος"]), CaseCollision, Some("assets/οδος")),
        (files(&["assets/d/x", "assets/D/y"]), CaseCollision, Some("assets/D/y")),
        (files(&["assets/d/e/x", "assets/z", "assets/d/E/y"]), CaseCollision, Some("assets/d/E/y")),
        (files(&["assets/a", "assets/a/b"]), FileAndDirectory, Some("assets/a/b")),
        (files(&["assets/a/b/c", "assets/a"]), FileAndDirectory, Some("assets/a")),
        (files(&["assets/a", "assets/a b", "assets/a-b", "assets/a/c/d"]), FileAndDirectory, Some("assets/a/c/d")),
        (valid_with(|tar| tar.file("assets/a", "").directory("assets/a/")), FileAndDirectory, Some("assets/a/")),
        (valid_with(|tar| tar.directory("assets/a/").file("assets/a", "")), FileAndDirectory, Some("assets/a")),
        (valid_with(|tar| tar.file("assets/a", "").directory("assets/a/b/")), FileAndDirectory, Some("assets/a/b/")),
        (valid_with(|tar| tar.file("assets/a", "").file("assets/A/b", "")), CaseCollision, Some("assets/A/b")),
    ]);
}

#[test]
fn unsupported_entry_types_are_rejected() {
    let typed = |kind| valid_with(|tar| tar.entry(b"assets/a", kind, b""));
    let unsupported = [
        (b'1', HardLink),
        (b'2', SymbolicLink),
        (b'3', CharacterDevice),
        (b'4', BlockDevice),
        (b'6', Fifo),
        (b'7', ContiguousFile),
        (b'S', SparseFile),
        (b'K', LinkTarget),
        (b'D', UnknownType),
        (b'V', UnknownType),
        (b'X', UnknownType),
        (b' ', UnknownType),
    ];
    check(unsupported.map(|(kind, reason)| (typed(kind), reason, Some("assets/a"))));
    check([
        (valid_with(|tar| tar.entry(b"assets/d/", b'5', b"content")), DirectoryWithContent, Some("assets/d/")),
        (valid_with(|tar| tar.long_name("assets/long").entry(b"short", b'2', b"")), SymbolicLink, Some("assets/long")),
    ]);
}

#[test]
fn invalid_headers_are_rejected() {
    let odd = |edit: fn(&mut tar::Header)| valid_with(|tar| tar.header(&malformed_header("assets/a", edit)));
    let size = |field: &[u8; 12]| {
        let header = malformed_header("assets/a", |header| header.as_old_mut().size = *field);
        (valid_with(|tar| tar.header(&header)), SizeInvalid, Some("assets/a"))
    };
    let mut unsummed = header(b"assets/a", b'0', 0);
    unsummed.set_mode(0o755);
    check([
        (valid_with(|tar| tar.header(&unsummed)), ChecksumMismatch, None),
        (valid_with(|tar| tar.bytes(&[b'x'; 512])), ChecksumMismatch, None),
        (odd(|header| header.as_mut_bytes()[257..263].copy_from_slice(b"vstar\0")), HeaderInvalid, Some("assets/a")),
        (odd(|header| header.as_mut_bytes()[263..265].copy_from_slice(b"01")), HeaderInvalid, Some("assets/a")),
        size(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        size(b"\x80\0\0\x01\0\0\0\0\0\0\0\0"),
        size(b"\x81\0\0\0\0\0\0\0\0\0\0\0"),
        size(b"\xc0\0\0\0\0\0\0\0\0\0\0\0"),
        size(b"\0\0\0\0\0\0\0\0\0\0\0\0"),
        size(b"            "),
        size(b"+0000000000\0"),
        size(b"-0000000001\0"),
        size(b"00000000008\0"),
        size(b"0x000000001\0"),
        size(b"0000\x000000007"),
    ]);
}

#[test]
fn truncated_and_trailing_data_is_rejected() {
    let good = Tar::valid().gzip();
    let bare = Tar::valid().0;
    let zeros = |count| vec![0; count];
    let with = |tail: &[u8]| gzip(&[&*bare, tail].concat());
    let wrong_crc = |from_end: usize| {
        let mut bundle = good.clone();
        let at = bundle.len() - from_end;
        bundle[at] ^= 1;
        bundle
    };
    let halves = bare.split_at(512);
    check([
        (vec![], Truncated, None),
        (good[..5].to_vec(), Truncated, None),
        (good[..good.len() - 1].to_vec(), Truncated, None),
        (with(b""), Truncated, None),
        (with(&zeros(512)), Truncated, None),
        (with(&zeros(1023)), Truncated, None),
        (gzip(&bare[..100]), Truncated, None),
        (gzip(&bare[..512 + 1]), Truncated, Some("svc.json")),
        (gzip(&bare[..1024 + 512 + 3]), Truncated, Some("worker/index.js")),
        (with(&[zeros(512), vec![b'x'; 512]].concat()), DataAfterEnd, None),
        (with(&[zeros(512), bare.clone(), zeros(1024)].concat()), DataAfterEnd, None),
        (with(&[zeros(1024), bare.clone(), zeros(1024)].concat()), DataAfterEnd, None),
        (with(&[zeros(4096), vec![1]].concat()), DataAfterEnd, None),
        ([&*good, b"\0"].concat(), TrailingBytes, None),
        ([&*good, &*good].concat(), TrailingBytes, None),
        ([&*good, &*gzip(b"")].concat(), TrailingBytes, None),
        ([gzip(&bare), gzip(&zeros(1024))].concat(), TrailingBytes, None),
        ([gzip(halves.0), gzip(halves.1)].concat(), TrailingBytes, Some("svc.json")),
        (wrong_crc(8), GzipCorrupt, None),
        (wrong_crc(1), GzipCorrupt, None),
        (Tar::valid().bytes(&zeros(1024)).0, NotGzip, None),
        (b"PK\x03\x04 and so on".to_vec(), NotGzip, None),
        (b"\x1f\x8b\x08\xe0\0\0\0\0\0\0".to_vec(), NotGzip, None),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\xff\xff\xff\xff\xff".to_vec(), GzipCorrupt, None),
        (gzip(&zeros(1024)), ManifestMissing, Some("svc.json")),
    ]);
}

#[test]
fn too_long_name_is_rejected() {
    let name = format!("assets/{}", "x".repeat(MAX_NAME_BYTES + 1 - "assets/".len()));
    let (reason, _) = read_invalid(&valid_with(|tar| tar.long_name(&name).file("cut", "")));
    assert_eq!(reason, NameTooLong);
}

#[test]
fn long_names_are_truncated_in_errors() {
    let name = format!("assets/{}", "é".repeat(1000));
    let cut = format!("{}…", name.chars().take(256).collect::<String>());
    assert_eq!(read_invalid(&valid_with(|tar| tar.long_name(&name).file("x", ""))), (NameTooLong, Some(cut)));
}

#[test]
fn reason_identifiers_are_unique() {
    let mut ids: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert!(ids.iter().all(|id| id.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), Reason::ALL.len());
    assert!(Reason::ALL.iter().all(|reason| reason.to_string().ends_with('.')));
}

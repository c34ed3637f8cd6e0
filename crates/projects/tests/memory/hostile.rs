//! Malicious and malformed archives, each with the expected error.

use std::io::Write as _;

use bundle::{MAX_MANIFEST_BYTES, MAX_NAME_BYTES};
use flate2::Compression;
use flate2::write::GzEncoder;
use kernel::{BundleLimits, Limits, Plan};
use testkit::bundle::tar::{Tar, gzip, header, malformed_header, record};

pub struct Hostile {
    /// The description in `docs/hostile-bundles.md`.
    pub description: &'static str,
    pub upload: Vec<u8>,
    /// `details.reason`, or `details.of` for an exceeded limit.
    pub reason: &'static str,
    /// `details.entry`.
    pub entry: Option<&'static str>,
}

pub fn limits() -> BundleLimits {
    Limits::default().for_plan(Plan::Free).bundle
}

const MIB: usize = 1 << 20;

/// Returns a valid bundle with additional content.
fn valid_with(more: impl FnOnce(Tar) -> Tar) -> Vec<u8> {
    more(Tar::valid()).gzip()
}

fn name(name: &[u8]) -> Vec<u8> {
    valid_with(|tar| tar.entry(name, b'0', b"x"))
}

fn files(names: &[&str]) -> Vec<u8> {
    valid_with(|tar| names.iter().fold(tar, |tar, name| tar.file(name, "")))
}

fn typed(kind: u8) -> Vec<u8> {
    valid_with(|tar| tar.entry(b"assets/a", kind, b""))
}

fn pax(records: &[(&str, &[u8])]) -> Vec<u8> {
    valid_with(|tar| tar.pax(records).file("assets/a", "x"))
}

fn sized(field: &[u8; 12]) -> Vec<u8> {
    valid_with(|tar| tar.header(&malformed_header("assets/a", |header| header.as_old_mut().size = *field)))
}

fn manifest(text: &str) -> Vec<u8> {
    Tar::default().file("svc.json", text).file("worker/index.js", "").gzip()
}

/// Returns a bundle with the maximum number of entries minus `less`. Calls `name` for the names of the files.
fn many_files(less: usize, name: impl Fn(usize) -> String) -> Tar {
    let count = limits().entries as usize - 2 - less;
    (0..count).fold(Tar::valid(), |tar, at| tar.long_name(&name(at)).file("cut", ""))
}

/// Returns a name of maximum length: `assets/`, the number, and repetitions of the text.
fn long_name(at: usize, text: &str) -> String {
    let mut name = format!("assets/{at}/{}", text.repeat(MAX_NAME_BYTES / text.len()));
    name.truncate(MAX_NAME_BYTES - 1);
    name + "x"
}

/// Compresses `start`, a number of MiB of zeros, and `end`, without holding all of it in memory.
fn bomb(start: &[&[u8]], mebibytes: usize, end: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    start.iter().for_each(|bytes| encoder.write_all(bytes).unwrap());
    (0..mebibytes).for_each(|_| encoder.write_all(&[0; MIB]).unwrap());
    encoder.write_all(end).unwrap();
    encoder.finish().unwrap()
}

fn streams() -> Vec<Hostile> {
    let (valid, bare) = (Tar::valid().gzip(), Tar::valid().0);
    let mut wrong_checksum = valid.clone();
    let at = wrong_checksum.len() - 8;
    wrong_checksum[at] ^= 1;
    let case = |description, reason, upload| Hostile { description, upload, reason, entry: None };
    vec![
        case("nothing", "truncated", Vec::new()),
        case("a zip file", "not_gzip", b"PK\x03\x04 and so on".to_vec()),
        case("a tar that is not compressed", "not_gzip", Tar::valid().bytes(&[0; 1024]).0),
        case("gzip cut before its checksum", "truncated", valid[..valid.len() - 8].to_vec()),
        case("gzip with a wrong checksum", "gzip_corrupt", wrong_checksum),
        case("two gzip members", "trailing_bytes", [&*valid, &*valid].concat()),
        case("bytes after the gzip member", "trailing_bytes", [&*valid, b"\0"].concat()),
        case("a tar without its end marker", "truncated", gzip(&bare)),
        case("a second tar after the end marker", "data_after_end", gzip(&[&*bare, &[0; 1024], &*bare].concat())),
        case("a header of random bytes", "checksum_mismatch", valid_with(|tar| tar.bytes(&[b'x'; 512]))),
    ]
}

fn names() -> Vec<Hostile> {
    let case = |description, reason, entry, upload| Hostile { description, upload, reason, entry: Some(entry) };
    vec![
        case("an absolute name", "absolute_path", "/etc/passwd", name(b"/etc/passwd")),
        case("a name that leaves the bundle", "dot_segment", "../../etc/passwd", name(b"../../etc/passwd")),
        case("a name that leaves its directory", "dot_segment", "assets/../../x", name(b"assets/../../x")),
        case("a name with a `.` segment", "dot_segment", "assets/./x", name(b"assets/./x")),
        case("a double slash", "empty_segment", "assets//x", name(b"assets//x")),
        case("a backslash", "backslash", "assets\\..\\x", name(b"assets\\..\\x")),
        case("a drive letter", "unexpected_path", "C:/assets/x", name(b"C:/assets/x")),
        case("a line break in a name", "control_character", "assets/a\u{fffd}b", name(b"assets/a\nb")),
        case("a name that is not UTF-8", "name_not_utf8", "assets/\u{fffd}", name(b"assets/\xff")),
        case("NUL in a GNU long name", "control_character", "assets/a\u{fffd}b", {
            valid_with(|tar| tar.entry(b"././@LongLink", b'L', b"assets/a\0b\0").file("cut", ""))
        }),
        case("a file outside the allowed paths", "unexpected_path", ".env", name(b".env")),
        case("a name twice", "duplicate", "assets/a", files(&["assets/a", "assets/a"])),
        case("a name twice, once with `./`", "duplicate", "assets/a", files(&["assets/a", "./assets/a"])),
        case("the manifest twice", "duplicate", "svc.json", files(&["svc.json"])),
        case("names that differ only in case", "case_collision", "assets/A", files(&["assets/a", "assets/A"])),
        case(
            "directories that differ only in case",
            "case_collision",
            "assets/D/y",
            files(&["assets/d/x", "assets/D/y"]),
        ),
        case("names that differ only in case, not ASCII", "case_collision", "assets/MASSE", {
            files(&["assets/maße", "assets/MASSE"])
        }),
        case("a file that is also a directory", "file_and_directory", "assets/a/b", files(&["assets/a", "assets/a/b"])),
    ]
}

fn entries() -> Vec<Hostile> {
    let case = |description, reason, upload| Hostile { description, upload, reason, entry: Some("assets/a") };
    vec![
        case("a hard link", "hard_link", typed(b'1')),
        case("a symbolic link", "symbolic_link", typed(b'2')),
        case("a character device", "character_device", typed(b'3')),
        case("a block device", "block_device", typed(b'4')),
        case("a FIFO", "fifo", typed(b'6')),
        case("a contiguous file", "contiguous_file", typed(b'7')),
        case("a sparse file", "sparse_file", typed(b'S')),
        case("a GNU long link target", "link_target", typed(b'K')),
        case("an entry of unknown type", "unknown_type", typed(b'Z')),
        case(
            "a directory with content",
            "directory_with_content",
            valid_with(|tar| tar.entry(b"assets/a", b'5', b"x")),
        ),
        case("a size that is negative", "size_invalid", sized(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")),
        case("a size beyond 64 bits", "size_invalid", sized(b"\x80\0\0\x01\0\0\0\0\0\0\0\0")),
        case("a header of unknown format", "header_invalid", {
            valid_with(|tar| {
                tar.header(&malformed_header("assets/a", |it| it.as_mut_bytes()[257..263].copy_from_slice(b"vstar\0")))
            })
        }),
    ]
}

fn extended() -> Vec<Hostile> {
    let case = |description, reason, upload| Hostile { description, upload, reason, entry: Some("PaxHeaders/it") };
    let twice = [record("path", b"assets/b"), record("path", b"assets/c")].concat();
    let global = |records: &[u8]| Tar::default().entry(b"PaxHeaders/it", b'g', records).bytes(&Tar::valid().0).gzip();
    vec![
        case("pax: a different size", "size_override", pax(&[("size", b"1")])),
        case("pax: a link target", "link_target", pax(&[("linkpath", b"/etc/passwd")])),
        case("pax: a sparse file", "sparse_file", pax(&[("GNU.sparse.major", b"1")])),
        case("pax: a different character set", "name_charset", pax(&[("hdrcharset", b"BINARY")])),
        case("pax: an unknown key", "extension_key", pax(&[("GNU.volume.label", b"x")])),
        case("pax: two names", "extension_malformed", {
            valid_with(|tar| tar.entry(b"PaxHeaders/it", b'x', &twice).file("assets/a", "x"))
        }),
        case("pax: a record longer than the header", "extension_malformed", {
            valid_with(|tar| tar.entry(b"PaxHeaders/it", b'x', b"99 path=assets/b\n").file("assets/a", "x"))
        }),
        case("pax: a header that declares eight gigabytes", "extension_too_large", {
            valid_with(|tar| tar.header(&header(b"PaxHeaders/it", b'x', 0o77_7777_7777)))
        }),
        case("pax: two headers for one entry", "extension_misplaced", {
            valid_with(|tar| tar.pax(&[]).pax(&[]).file("assets/a", ""))
        }),
        case("pax: a name for all entries", "extension_key", global(&record("path", b"assets/a"))),
        Hostile {
            description: "pax: a name that climbs out",
            upload: pax(&[("path", b"../x")]),
            reason: "dot_segment",
            entry: Some("../x"),
        },
    ]
}

fn manifests() -> Vec<Hostile> {
    let case = |description, reason, entry, upload| Hostile { description, upload, reason, entry };
    let (entry, max_bytes) = (Some("svc.json"), MAX_MANIFEST_BYTES as usize);
    vec![
        case("no manifest", "manifest_missing", entry, Tar::default().file("assets/a", "").gzip()),
        case("a manifest that is not JSON", "manifest_not_json", entry, manifest("{")),
        case("a manifest that is a list", "manifest_not_object", entry, manifest("[]")),
        case("a manifest with a duplicate key", "manifest_duplicate_key", entry, manifest(r#"{"ai":true,"ai":false}"#)),
        case("a manifest with wrong types", "manifest_wrong_type", entry, manifest(r#"{"ai":"yes"}"#)),
        case("a manifest with U+0000", "manifest_nul", entry, manifest(r#"{"name":"\u0000"}"#)),
        case("a manifest of only brackets", "manifest_too_deep", entry, manifest(&"[".repeat(max_bytes))),
        case("a manifest that is a list of maximum length", "manifest_not_object", entry, {
            manifest(&format!("[{}0]", "0,".repeat((max_bytes - 3) / 2)))
        }),
        case("a manifest that declares 64 KiB plus one byte", "manifest_too_large", entry, {
            gzip(&Tar::default().header(&header(b"svc.json", b'0', MAX_MANIFEST_BYTES + 1)).0)
        }),
        case("a main that does not exist", "main_missing", Some("worker/x.js"), manifest(r#"{"main":"worker/x.js"}"#)),
        case("nothing to deploy", "nothing_to_deploy", None, Tar::default().file("svc.json", "{}").gzip()),
    ]
}

fn sizes() -> Vec<Hostile> {
    let case = |description, reason, upload| Hostile { description, upload, reason, entry: None };
    let declared = |size| valid_with(|tar| tar.header(&header(b"assets/a", b'0', size)));
    vec![
        case("a bomb: two files of 200 MiB of zeros", "unpacked", {
            let file = Tar::default().header(&header(b"assets/a", b'0', 200 << 20)).0;
            let other = Tar::default().header(&header(b"assets/b", b'0', 200 << 20)).0;
            bomb(&[&*Tar::valid().0, &*file], 200, &other)
        }),
        case("a bomb: a gigabyte of zeros after the end", "unpacked", bomb(&[&*Tar::valid().0], 1024, &[])),
        case("a file that declares eight gigabytes", "unpacked", declared(0o77_7777_7777)),
        case("a file that declares 16 exabytes", "unpacked", declared(u64::MAX)),
        case("more entries than allowed", "entries", {
            many_files(0, |at| format!("assets/{at}")).file("assets/more", "").gzip()
        }),
        case("names with 500 directories each", "entries", many_files(0, |at| long_name(at, "d/")).gzip()),
        case("the maximum number of longest names", "names", many_files(0, |at| long_name(at, "x")).gzip()),
        Hostile {
            description: "the maximum number of names, the last one duplicated",
            upload: many_files(2, |at| format!("assets/{at}")).file("assets/a", "").file("assets/a", "").gzip(),
            reason: "duplicate",
            entry: Some("assets/a"),
        },
    ]
}

pub fn all() -> Vec<Hostile> {
    [streams(), names(), entries(), extended(), manifests(), sizes()].into_iter().flatten().collect()
}

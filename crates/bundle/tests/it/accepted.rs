//! Valid bundles: the output of common tools, and unusual input that the formats allow.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use bundle::Reason;

use crate::support::{Tar, malformed_header, read_invalid, read_valid, record};

/// Writes a project to disk and returns its folder and its files. A name over 100 bytes needs the ustar prefix field,
/// which splits at a slash. The `long` names do not fit ustar at all.
fn project(name: &str, long: bool) -> (PathBuf, BTreeMap<String, Vec<u8>>) {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut files = BTreeMap::from([
        ("svc.json".to_owned(), br#"{"auth":true}"#.to_vec()),
        ("worker/index.js".to_owned(), b"export default {}".to_vec()),
        ("assets/empty.txt".to_owned(), vec![]),
        ("assets/block.bin".to_owned(), vec![7; 512]),
        ("assets/css/ünïcode name.css".to_owned(), vec![b'x'; 70_000]),
        (format!("assets/{0}/{0}/{0}.js", "split".repeat(12)), b"ustar has a prefix for this".to_vec()),
    ]);
    if long {
        files.insert(format!("assets/{}.js", "whole".repeat(40)), b"ustar cannot store this".to_vec());
        files.insert(format!("assets/{}end", "deep/".repeat(180)), b"nor this".to_vec());
    }
    let _ = fs::remove_dir_all(&root);
    for (path, content) in &files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    fs::create_dir_all(root.join("assets/nothing here")).unwrap();
    (root, files)
}

/// Runs `tar` in a folder. Spaces separate the arguments.
fn tar(root: &Path, arguments: &str) -> Vec<u8> {
    let mut command = Command::new("tar");
    command.current_dir(root).args(["-c", "-z", "-f", "-"]).args(arguments.split(' '));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn gnu_tar_output_is_accepted() {
    for (format, long) in [("gnu", true), ("oldgnu", true), ("pax", true), ("ustar", false)] {
        let (root, files) = project(&format!("tar-{format}"), long);
        for arguments in [
            ".",
            "svc.json worker assets",
            "--sort=name --owner=0 --mtime=@0 ./assets ./worker ./svc.json",
            "--blocking-factor=2048 .",
        ] {
            let (contents, visited) = read_valid(&tar(&root, &format!("--format={format} {arguments}")));
            assert_eq!(visited, files, "{format} {arguments}");
            assert!(contents.manifest.auth && contents.has_worker);
            assert_eq!(contents.asset_count as usize, files.len() - 2);
            assert_eq!(contents.unpacked_bytes as usize, files.values().map(Vec::len).sum::<usize>());
        }
    }
}

#[test]
fn gnu_tar_output_with_xattrs_and_comment_is_accepted() {
    let (root, files) = project("attributes", true);
    let bundle = tar(&root, "--format=pax --xattrs --pax-option=comment=by-hand .");
    assert_eq!(read_valid(&bundle).1, files);
}

#[test]
fn links_in_gnu_tar_output_are_rejected() {
    let (root, _) = project("links", false);
    symlink("/etc/passwd", root.join("assets/link")).unwrap();
    fs::hard_link(root.join("worker/index.js"), root.join("worker/same.js")).unwrap();
    for (arguments, reason) in [
        ("--format=gnu svc.json assets", Reason::SymbolicLink),
        ("--format=pax svc.json assets", Reason::SymbolicLink),
        ("--format=gnu svc.json worker", Reason::HardLink),
    ] {
        assert_eq!(read_invalid(&tar(&root, arguments)).0, reason, "{arguments}");
    }
}

#[test]
fn harmless_extended_headers_are_accepted() {
    let tar = Tar::default()
        .entry(b"pax_global_header", b'g', &record("comment", b"0123456789abcdef"))
        .pax(&[("mtime", b"1.5"), ("atime", b"2"), ("ctime", b"3"), ("path", b"./svc.json")])
        .file("overridden", "{}")
        .pax(&[("uid", b"9999999"), ("gid", b"1"), ("uname", "ü".as_bytes()), ("gname", b"g"), ("comment", b"=")])
        .file("worker/index.js", "")
        .pax(&[("SCHILY.xattr.user.x", b"a\nb\0c=d"), ("LIBARCHIVE.creationtime", b"1"), ("path", b"assets/a\xc3\xa9")])
        .file("../../overridden", "a")
        .entry(b"PaxHeaders/empty", b'x', b"")
        .file("assets/b", "b");
    let (contents, files) = read_valid(&tar.gzip());
    assert_eq!(files.keys().collect::<Vec<_>>(), ["assets/aé", "assets/b", "svc.json", "worker/index.js"]);
    assert_eq!(contents.entry_count, 4);
}

#[test]
fn all_header_formats_are_accepted() {
    let binary =
        malformed_header("assets/binary", |header| header.as_old_mut().size = *b"\x80\0\0\0\0\0\0\0\0\0\0\x03");
    let spaced = malformed_header("assets/spaced", |header| header.as_old_mut().size = *b"         3 \0");
    let unended = malformed_header("assets/unended", |header| header.as_old_mut().size = *b"000000000003");
    let old = malformed_header("assets/old", |header| {
        header.as_mut_bytes()[257..265].fill(0);
        header.as_old_mut().linkflag = [0];
        header.set_size(3);
    });
    let prefixed = malformed_header("name", |header| {
        header.as_ustar_mut().unwrap().prefix[..9].copy_from_slice(b"assets/in");
        header.set_size(3);
    });
    let tar = [binary, spaced, unended, old, prefixed]
        .iter()
        .fold(Tar::valid(), |tar, header| tar.header(header).content(b"abc"));
    let (contents, files) = read_valid(&tar.gzip());
    assert_eq!(contents.asset_count, 5);
    assert!(files.keys().any(|path| path == "assets/in/name"));
    assert!(files.iter().all(|(path, content)| !path.starts_with("assets") || content == b"abc"));
}

#[test]
fn unusual_names_are_accepted() {
    let longest = format!("assets/{}", "x".repeat(bundle::MAX_NAME_BYTES - "assets/".len()));
    let names = [
        "assets/ a",
        "assets/...",
        "assets/a..b",
        "assets/.well-known/x",
        "assets/~",
        "assets/%2e%2e",
        "assets/a:b",
        "assets/日本語",
        "assets/svc.json",
        "assets/worker/index.js",
        "assets/A",
        "assets/AB/c",
        // Files and directories with a common name prefix.
        "assets/p/x",
        "assets/p-",
        "assets/q",
        "assets/q-/x",
        "assets/q.js",
    ];
    let tar = names.iter().fold(Tar::valid(), |tar, name| tar.file(name, ""));
    let tar = tar.directory("./").directory(".").directory("assets/").directory("assets/p/").directory("assets/p/y");
    let tar = tar.long_name(&format!("./{longest}")).file("cut", "");
    let (_, files) = read_valid(&tar.gzip());
    assert!(names.iter().all(|name| files.contains_key(*name)));
    assert!(files.contains_key(&longest));
}

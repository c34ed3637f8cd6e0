//! The manifest `svc.json`, and its rules for the other files of the bundle.

use bundle::Reason::*;
use bundle::{MAX_MANIFEST_BYTES, Manifest, Reason};
use serde_json::json;

use crate::support::{Tar, gzip, header, read_invalid, read_valid};

fn with_manifest(text: impl AsRef<[u8]>) -> Tar {
    Tar::default().file("svc.json", text).file("worker/index.js", "")
}

fn nested(levels: usize) -> String {
    // The manifest itself is the first level.
    format!("{{\"x\":{}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1))
}

#[test]
fn invalid_manifests_are_rejected() {
    let (deep, large) = (nested(65), vec![b' '; MAX_MANIFEST_BYTES as usize + 1]);
    let cases: &[(&[u8], Reason)] = &[
        (b"", ManifestNotJson),
        (b"{", ManifestNotJson),
        (b"{} {}", ManifestNotJson),
        (b"\xef\xbb\xbf{}", ManifestNotJson),
        (b"{\"name\":\"\xff\"}", ManifestNotJson),
        (b"{\"x\":1e999}", ManifestNotJson),
        (b"{\"x\":NaN}", ManifestNotJson),
        (b"// none\n{}", ManifestNotJson),
        (b"null", ManifestNotObject),
        (b"[]", ManifestNotObject),
        (b"\"svc\"", ManifestNotObject),
        (b"{\"auth\":1}", ManifestWrongType),
        (b"{\"database\":\"true\"}", ManifestWrongType),
        (b"{\"email\":null}", ManifestWrongType),
        (b"{\"ai\":[]}", ManifestWrongType),
        (b"{\"storage\":{}}", ManifestWrongType),
        (b"{\"name\":null}", ManifestWrongType),
        (b"{\"main\":[\"worker/index.js\"]}", ManifestWrongType),
        (b"{\"compatibilityDate\":20250101}", ManifestWrongType),
        (b"{\"auth\":true,\"auth\":true}", ManifestDuplicateKey),
        (b"{\"auth\":true,\"\\u0061uth\":false}", ManifestDuplicateKey),
        (b"{\"x\":[{\"y\":1,\"y\":1}]}", ManifestDuplicateKey),
        (b"{\"name\":\"a\\u0000\"}", ManifestNul),
        (b"{\"x\\u0000\":1}", ManifestNul),
        (deep.as_bytes(), ManifestTooDeep),
        (&large, ManifestTooLarge),
    ];
    for (text, reason) in cases {
        let excerpt = String::from_utf8_lossy(&text[..text.len().min(80)]);
        assert_eq!(read_invalid(&with_manifest(text).gzip()), (*reason, Some("svc.json".to_owned())), "{excerpt}");
        assert_eq!(Manifest::parse(text), Err(*reason), "{excerpt}");
    }
}

#[test]
fn declared_manifest_size_over_the_limit_is_rejected() {
    let claim = Tar::default().header(&header(b"svc.json", b'0', MAX_MANIFEST_BYTES + 1));
    assert_eq!(read_invalid(&gzip(&claim.0)), (ManifestTooLarge, Some("svc.json".to_owned())));
}

#[test]
fn manifest_round_trips() {
    let text = json!({
        "auth": true, "database": false, "email": true, "ai": false, "storage": true,
        "name": "shop", "main": "./worker/app.mjs", "compatibilityDate": "2025-11-01",
        "Auth": "another key", "build": { "command": ["make"], "retries": 3, "factor": 0.5, "note": null },
    });
    let bundle = Tar::default().file("worker/app.mjs", "").file("svc.json", text.to_string()).gzip();
    let (contents, files) = read_valid(&bundle);
    assert_eq!(files["svc.json"], text.to_string().as_bytes());
    let manifest = contents.manifest;
    assert!(manifest.auth && manifest.email && manifest.storage && !manifest.database && !manifest.ai);
    assert_eq!(manifest.name.as_deref(), Some("shop"));
    assert_eq!(manifest.main_path(), "worker/app.mjs");
    assert_eq!(manifest.compatibility_date.as_deref(), Some("2025-11-01"));
    assert_eq!(manifest.unknown.len(), 2);
    assert_eq!(serde_json::to_value(&manifest).unwrap(), text);
    assert_eq!(serde_json::from_value::<Manifest>(text).unwrap(), manifest);
}

#[test]
fn empty_manifest_equals_the_default() {
    let (contents, _) = read_valid(&with_manifest(" {} \n").gzip());
    assert_eq!(contents.manifest, Manifest::default());
    assert_eq!(contents.manifest.main_path(), "worker/index.js");
}

#[test]
fn manifest_at_the_size_and_depth_limits_is_accepted() {
    let mut text = nested(64);
    text.push_str(&" ".repeat(MAX_MANIFEST_BYTES as usize - text.len()));
    assert_eq!(read_valid(&with_manifest(text).gzip()).0.manifest.unknown.len(), 1);
}

#[test]
fn manifest_must_match_the_files() {
    let bundle = |manifest: &str, names: &[&str]| {
        let tar = Tar::default().file("svc.json", manifest);
        names.iter().fold(tar, |tar, name| if name.ends_with('/') { tar.directory(name) } else { tar.file(name, "") })
    };
    let missing = |main: &str| (MainMissing, Some(main.to_owned()));
    let cases = [
        (Tar::default().file("worker/index.js", ""), (ManifestMissing, Some("svc.json".to_owned()))),
        (bundle("{}", &[]), (NothingToDeploy, None)),
        (bundle("{}", &["./", "assets/", "assets/css/"]), (NothingToDeploy, None)),
        (bundle("{}", &["worker/main.js"]), missing("worker/index.js")),
        (bundle("{}", &["worker/INDEX.js"]), missing("worker/index.js")),
        (bundle("{}", &["worker/index.js/"]), missing("worker/index.js")),
        (bundle("{}", &["worker/", "assets/index.html"]), missing("worker/index.js")),
        (bundle(r#"{"main":"worker/a.js"}"#, &["worker/index.js"]), missing("worker/a.js")),
        (bundle(r#"{"main":"index.js"}"#, &["worker/index.js"]), missing("index.js")),
        (bundle(r#"{"main":"/worker/index.js"}"#, &["worker/index.js"]), missing("/worker/index.js")),
        (bundle(r#"{"main":"worker/../worker/index.js"}"#, &["worker/index.js"]), missing("worker/../worker/index.js")),
        (bundle(r#"{"main":""}"#, &["worker/index.js"]), missing("")),
        (bundle(r#"{"main":"svc.json"}"#, &["worker/index.js"]), missing("svc.json")),
        (bundle(r#"{"main":"assets/a.js"}"#, &["worker/index.js", "assets/a.js"]), missing("assets/a.js")),
        (bundle(r#"{"main":"worker/index.js"}"#, &["assets/index.html"]), missing("worker/index.js")),
    ];
    for (tar, expected) in cases {
        assert_eq!(read_invalid(&tar.gzip()), expected);
    }
}

#[test]
fn assets_or_a_worker_are_enough() {
    let (site, _) = read_valid(&Tar::default().file("svc.json", "{}").file("assets/index.html", "").gzip());
    assert_eq!((site.has_worker, site.asset_count), (false, 1));
    let (worker, _) = read_valid(&Tar::valid().gzip());
    assert_eq!((worker.has_worker, worker.asset_count), (true, 0));
}

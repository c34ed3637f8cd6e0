//! Packing of a folder into a bundle.

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{Duration, SystemTime};

use crate::support::{Machine, Platform};

/// Deploys the folder and returns the digest of its bundle.
fn digest(machine: &Machine) -> String {
    machine.json(&["deploy", "--no-wait"])["digest"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_does_not_depend_on_times_modes_and_owners() {
    let platform = Platform::start().await;
    let (one, two) = (platform.ada_with_site(), platform.ada());
    two.svc(&["init", "--org", "ada", "--project", "site"]).succeeds();
    let names = ["assets/z.txt", "assets/a/b.txt", "assets/A.txt", "assets/a.txt", "assets/.well-known/x"];
    let long = format!("assets/{}/{}.html", "d".repeat(120), "f".repeat(120));
    let names: Vec<&str> = names.into_iter().filter(|name| *name != "assets/A.txt").chain([long.as_str()]).collect();
    names.iter().for_each(|name| one.write(name, name));
    two.write("assets/index.html", "<h1>Hello</h1>");
    for (age, name) in names.iter().rev().enumerate() {
        two.write(name, name);
        let file = File::options().write(true).open(two.folder.join(name)).unwrap();
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + age as u64);
        file.set_times(FileTimes::new().set_modified(modified)).unwrap();
        fs::set_permissions(two.folder.join(name), Permissions::from_mode(0o700)).unwrap();
        // Only root can change the owner. If another user runs the test, it checks only the other differences.
        let _ = std::os::unix::fs::chown(two.folder.join(name), Some(12345), Some(12345));
    }
    let first = digest(&one);
    assert_eq!(digest(&two), first);
    assert_eq!(digest(&one), first);
    two.write("assets/z.txt", "z");
    assert_ne!(digest(&two), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_contains_only_its_folders_without_ignored_files() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    let before = digest(&ada);
    // The bundle contains neither files outside its folders nor ignored files.
    ada.write("notes.txt", "mine");
    ada.write("src/assets/x", "mine");
    symlink("nowhere", ada.folder.join("link")).unwrap();
    ada.write(".svcignore", "*.map\n/assets/drafts/\n!keep.map\n");
    ada.write("assets/app.js.map", "map");
    ada.write("assets/drafts/index.html", "draft");
    ada.write("assets/inner/.svcignore", "*\n");
    ada.write("assets/inner/secret.txt", "secret");
    symlink("nowhere", ada.folder.join("assets/inner/link")).unwrap();
    assert_eq!(digest(&ada), before);
    ada.write("assets/keep.map", "map");
    assert_ne!(digest(&ada), before);
    assert_eq!(ada.json(&["deployments"])["items"][0]["assetCount"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_can_be_a_symlink() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    let expected = digest(&ada);
    let link = ada.unlinked().join("current");
    symlink(&ada.folder, &link).unwrap();
    assert_eq!(ada.json(&["deploy", "--no-wait", &link.display().to_string()])["digest"], expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_bundle_is_rejected_before_the_upload() {
    let platform = Platform::start().await;
    let assert_rejected = |prepare: &dyn Fn(&Machine), text: &str| {
        let machine = platform.ada();
        machine.svc(&["init", "--org", "ada", "--project", "nowhere"]).succeeds();
        machine.write("assets/index.html", "page");
        prepare(&machine);
        // An upload would fail with exit code 5, because the project does not exist.
        machine.svc(&["deploy"]).fails(6).stderr_contains(text);
    };
    let write = |path: &'static str, text: &'static str| move |it: &Machine| it.write(path, text);
    assert_rejected(
        &|it| symlink("index.html", it.folder.join("assets/link")).unwrap(),
        "assets/link: The entry is a symbolic link",
    );
    assert_rejected(
        &|it| {
            fs::rename(it.folder.join("assets"), it.folder.join("real")).unwrap();
            symlink("real", it.folder.join("assets")).unwrap();
        },
        "assets: The entry is a symbolic link",
    );
    assert_rejected(
        &|it| {
            let status = std::process::Command::new("mkfifo").arg(it.folder.join("assets/fifo")).status().unwrap();
            assert!(status.success());
        },
        "assets/fifo: The entry is a FIFO",
    );
    assert_rejected(&write("assets/INDEX.html", "page"), "differs only in case");
    assert_rejected(&write("assets/a\\b", "page"), "backslash");
    assert_rejected(&write("svc.json", "{\"auth\": \"yes\"}"), "svc.json: auth, database");
    assert_rejected(
        &write("svc.json", "{\n  \"ai\": true,\n}\n"),
        "svc.json, line 3, column 1: The manifest is not valid JSON.\n",
    );
    assert_rejected(&write("svc.json", "{\"a\": 1, \"a\": 2}"), "has a duplicate key");
    assert_rejected(&write("worker/other.js", "export default {}"), "manifest's main");
    assert_rejected(&|it| fs::remove_file(it.folder.join("svc.json")).unwrap(), "Run `svc init` to create one");
    assert_rejected(&|it| fs::remove_dir_all(it.folder.join("assets")).unwrap(), "neither worker code nor an asset");
    assert_rejected(&write("assets/.svcignore", "*.map\n[z-a]\n"), "assets/.svcignore: line 2");
    assert_rejected(&write(".svcignore/secret", ""), ".svcignore: Is a directory");
    assert_rejected(&|it| symlink("nowhere", it.folder.join(".svcignore")).unwrap(), ".svcignore: No such file");
    assert_rejected(
        &|it| fs::write(it.folder.join(".svcignore"), b"*.map\n\xff\n").unwrap(),
        ".svcignore: stream did not",
    );
    assert_rejected(&write(".svcignore", "assets/\n"), "neither worker code nor an asset");
    assert_rejected(
        &|it| {
            let long = "x".repeat(246);
            (0..2200).for_each(|at| it.write(&format!("assets/{long}/{long}/{long}/{long}{at:04}"), ""));
        },
        "limit of 2097152 bytes of file names in total",
    );
    platform.ada().svc(&["deploy", "nowhere", "--org", "ada", "--project", "site"]).fails(2);
}

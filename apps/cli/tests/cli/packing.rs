//! What a folder becomes, before anything is sent.

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{Duration, SystemTime};

use crate::kit::{Machine, Platform};

/// Deploys the folder and answers the digest.
fn digest(machine: &Machine) -> String {
    machine.json(&["deploy", "--no-wait"])["digest"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_files_are_the_same_bytes_whenever_and_by_whomever_they_were_written() {
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
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + age as u64);
        file.set_times(FileTimes::new().set_modified(then)).unwrap();
        fs::set_permissions(two.folder.join(name), Permissions::from_mode(0o700)).unwrap();
        // Only root may give a file to somebody else; who is not has shown the rest.
        let _ = std::os::unix::fs::chown(two.folder.join(name), Some(12345), Some(12345));
    }
    let first = digest(&one);
    assert_eq!(digest(&two), first);
    assert_eq!(digest(&one), first);
    two.write("assets/z.txt", "z");
    assert_ne!(digest(&two), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_bundle_s_places_are_packed_less_what_is_ignored() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    let before = digest(&ada);
    // Beside the bundle's places anything may lie; in them, what is to be ignored.
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
async fn a_folder_may_be_named_by_a_link() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    let named = digest(&ada);
    let link = ada.unlinked().join("current");
    symlink(&ada.folder, &link).unwrap();
    assert_eq!(ada.json(&["deploy", "--no-wait", &link.display().to_string()])["digest"], named);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_bundle_is_refused_before_anything_is_sent() {
    let platform = Platform::start().await;
    let refused = |prepare: &dyn Fn(&Machine), words: &str| {
        let machine = platform.ada();
        machine.svc(&["init", "--org", "ada", "--project", "nowhere"]).succeeds();
        machine.write("assets/index.html", "page");
        prepare(&machine);
        // Whatever were sent would be answered by exit code 5: there is no such project.
        machine.svc(&["deploy"]).fails(6).says(words);
    };
    let write = |path: &'static str, text: &'static str| move |it: &Machine| it.write(path, text);
    refused(
        &|it| symlink("index.html", it.folder.join("assets/link")).unwrap(),
        "assets/link: This is a symbolic link",
    );
    refused(
        &|it| {
            fs::rename(it.folder.join("assets"), it.folder.join("real")).unwrap();
            symlink("real", it.folder.join("assets")).unwrap();
        },
        "assets: This is a symbolic link",
    );
    refused(
        &|it| {
            let made = std::process::Command::new("mkfifo").arg(it.folder.join("assets/fifo")).status().unwrap();
            assert!(made.success());
        },
        "assets/fifo: This is a FIFO",
    );
    refused(&write("assets/INDEX.html", "page"), "differs only by case");
    refused(&write("assets/a\\b", "page"), "backslash");
    refused(&write("svc.json", "{\"auth\": \"yes\"}"), "svc.json: In the manifest auth");
    refused(&write("svc.json", "{\"a\": 1, \"a\": 2}"), "has a key twice");
    refused(&write("worker/other.js", "export default {}"), "manifest's main");
    refused(&|it| fs::remove_file(it.folder.join("svc.json")).unwrap(), "`svc init` writes one");
    refused(&|it| fs::remove_dir_all(it.folder.join("assets")).unwrap(), "neither worker code nor an asset");
    refused(&write("assets/.svcignore", "*.map\n[z-a]\n"), "assets/.svcignore: line 2");
    refused(&write(".svcignore/secret", ""), ".svcignore: Is a directory");
    refused(&|it| symlink("nowhere", it.folder.join(".svcignore")).unwrap(), ".svcignore: No such file");
    refused(&|it| fs::write(it.folder.join(".svcignore"), b"*.map\n\xff\n").unwrap(), ".svcignore: stream did not");
    refused(&write(".svcignore", "assets/\n"), "neither worker code nor an asset");
    platform.ada().svc(&["deploy", "nowhere", "--org", "ada", "--project", "site"]).fails(2);
}

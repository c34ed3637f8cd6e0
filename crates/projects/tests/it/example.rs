use std::path::PathBuf;
use std::process::Command;

use kernel::Plan;

use crate::kit::{Files, Kit, bundle};

/// Cargo puts examples beside the folder that holds the tests.
fn built(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples").join(example)
}

/// What `check_bundle` says of these bytes, as a file and as its input, and whether it takes them.
fn checked(arguments: &[&str], upload: &[u8]) -> (String, bool) {
    let files = Files::new();
    let file = files.path().join("bundle.tgz");
    std::fs::write(&file, upload).unwrap();
    let of_file = Command::new(built("check_bundle")).args(arguments).arg(&file).output().unwrap();
    let input = std::fs::File::open(&file).unwrap();
    let of_input = Command::new(built("check_bundle")).args(arguments).stdin(input).output().unwrap();
    assert_eq!((&of_file.stdout, of_file.status), (&of_input.stdout, of_input.status));
    assert!(of_file.status.success() || of_file.status.code() == Some(1));
    (String::from_utf8(of_file.stdout).unwrap(), of_file.status.success())
}

#[test]
fn the_example_checks_bundles() {
    let good = bundle(&[("svc.json", br#"{"ai":true,"email":true}"#), ("worker/index.js", b""), ("assets/a", b"abc")]);
    let summary = "entries: 3\nassets: 1\nunpacked: 27 bytes\nworker: worker/index.js\ndeclares: email ai\n";
    assert_eq!(checked(&[], &good), (summary.to_owned(), true));
    let (said, taken) = checked(&[], &bundle(&[("svc.json", b"{}"), (".env", b"")]));
    assert!(!taken && said.ends_with("reason: unexpected_path\nentry: .env\n"), "{said}");
    let large = bundle(&[("svc.json", b"{}"), ("assets/a", &vec![0; (250 << 20) - 1])]);
    let (said, taken) = checked(&[], &large);
    assert!(!taken && said.ends_with("limit: unpacked 262144000\n"), "{said}");
    assert!(checked(&["--plan", "pro"], &large).1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_lists_projects_and_deployments() {
    let kit = Kit::start().await;
    let (org, other) = (kit.db_org("acme", Plan::Pro).await, kit.db_org("other", Plan::Pro).await);
    kit.project(&other, "hidden").await;
    let (shop, blog) = (kit.project(&org, "shop").await, kit.project(&org, "blog").await);
    let one = kit.deploy(&org, shop.id, "one").await.unwrap();
    let two = kit.deploy(&org, shop.id, "two").await.unwrap();

    let listed = kit.database.example("deployments", &[&org.id.to_string()]);
    let lines: Vec<&str> = listed.lines().map(str::trim_end).collect();
    let expected = [
        format!("{} shop-acme.svc.example", shop.id),
        format!("  2 {} live", two.digest),
        format!("  1 {}", one.digest),
        format!("{} blog-acme.svc.example", blog.id),
    ];
    assert_eq!(lines, expected);
}

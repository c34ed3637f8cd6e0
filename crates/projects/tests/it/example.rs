use std::path::PathBuf;
use std::process::Command;

use kernel::Plan;

use crate::kit::{Files, Kit, bundle};

/// Returns the path of a built example, next to the folder of the test binaries.
fn example_path(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples").join(example)
}

/// Runs `check_bundle` with a file and with standard input. Returns the output, and whether the bundle is valid.
fn run_check(arguments: &[&str], upload: &[u8]) -> (String, bool) {
    let files = Files::new();
    let file = files.path().join("bundle.tgz");
    std::fs::write(&file, upload).unwrap();
    let with_file = Command::new(example_path("check_bundle")).args(arguments).arg(&file).output().unwrap();
    let input = std::fs::File::open(&file).unwrap();
    let with_input = Command::new(example_path("check_bundle")).args(arguments).stdin(input).output().unwrap();
    assert_eq!((&with_file.stdout, with_file.status), (&with_input.stdout, with_input.status));
    assert!(with_file.status.success() || with_file.status.code() == Some(1));
    (String::from_utf8(with_file.stdout).unwrap(), with_file.status.success())
}

#[test]
fn check_bundle_example_validates_bundles() {
    let good = bundle(&[("svc.json", br#"{"ai":true,"email":true}"#), ("worker/index.js", b""), ("assets/a", b"abc")]);
    let summary = "entries: 3\nassets: 1\nunpacked: 27 bytes\nworker: worker/index.js\ndeclares: email ai\n";
    assert_eq!(run_check(&[], &good), (summary.to_owned(), true));
    let (output, valid) = run_check(&[], &bundle(&[("svc.json", b"{}"), (".env", b"")]));
    assert!(!valid && output.ends_with("reason: unexpected_path\nentry: .env\n"), "{output}");
    let large = bundle(&[("svc.json", b"{}"), ("assets/a", &vec![0; (250 << 20) - 1])]);
    let (output, valid) = run_check(&[], &large);
    assert!(!valid && output.ends_with("limit: unpacked 262144000\n"), "{output}");
    assert!(run_check(&["--plan", "pro"], &large).1);
}

#[tokio::test(flavor = "multi_thread")]
async fn deployments_example_lists_projects_and_deployments() {
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

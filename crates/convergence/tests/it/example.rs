use std::process::Command;

use crate::kit::{Kit, site};

#[tokio::test(flavor = "multi_thread")]
async fn the_example_prints_the_nodes() {
    let kit = Kit::start().await;
    let node = kit.node("edge").await.node.id;
    kit.converge(kit.project(), Some(site(7))).await;

    // Cargo puts examples beside the folder that holds the tests.
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).unwrap().join("examples/nodes");
    let output = Command::new(&example)
        .env("SVC_DATABASE_URL", kit.database.url())
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}; `cargo test` without `--test` builds it", example.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{node} edge 1\n"));
}

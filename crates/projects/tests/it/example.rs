use std::process::Command;

use kernel::Plan;

use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn the_example_lists_projects_and_deployments() {
    let kit = Kit::start().await;
    let (org, other) = (kit.db_org("acme", Plan::Pro).await, kit.db_org("other", Plan::Pro).await);
    kit.project(&other, "hidden").await;
    let (shop, blog) = (kit.project(&org, "shop").await, kit.project(&org, "blog").await);
    let one = kit.deploy(&org, shop.id, "one").await.unwrap();
    let two = kit.deploy(&org, shop.id, "two").await.unwrap();

    // Cargo puts examples beside the folder that holds the tests.
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).unwrap().join("examples/deployments");
    let output = Command::new(&example)
        .arg(org.id.to_string())
        .env("SVC_DATABASE_URL", kit.database.url())
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}; `cargo test` without `--test` builds it", example.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = listed.lines().map(str::trim_end).collect();
    let expected = [
        format!("{} shop-acme.svc.example", shop.id),
        format!("  2 {} live", two.digest),
        format!("  1 {}", one.digest),
        format!("{} blog-acme.svc.example", blog.id),
    ];
    assert_eq!(lines, expected);
}

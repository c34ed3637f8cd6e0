use std::process::Command;

use kernel::Role;

use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn the_example_lists_every_member() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    let users = kit.db_users("user", 60).await;
    kit.db_join(org, &users, Role::Viewer).await;

    // Cargo puts examples beside the folder that holds the tests.
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).unwrap().join("examples/members");
    let output = Command::new(&example)
        .arg(org.to_string())
        .env("SVC_DATABASE_URL", kit.database.url())
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}; `cargo test` without `--test` builds it", example.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(listed.lines().count(), 61);
    assert!(listed.lines().any(|line| line == format!("{ada} admin ada")), "{listed}");
    assert!(users.iter().all(|user| listed.contains(&user.to_string())));
}

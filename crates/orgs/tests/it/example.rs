use kernel::Role;

use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn example_lists_all_members() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let org = kit.org(ada, "acme").await.id;
    let users = kit.db_users("user", 60).await;
    kit.db_join(org, &users, Role::Viewer).await;

    let listed = kit.database.example("members", &[&org.to_string()]);
    assert_eq!(listed.lines().count(), 61);
    assert!(listed.lines().any(|line| line == format!("{ada} admin ada")), "{listed}");
    assert!(users.iter().all(|user| listed.contains(&user.to_string())));
}

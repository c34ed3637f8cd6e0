use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn grants_example_prints_the_grants() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    kit.db_grant(at, "storage").await;
    kit.db_grant(at, "auth").await;
    assert_eq!(kit.database.example("grants", &[&at.project.to_string()]), "auth\nstorage\n");
}

use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn grants_example_prints_the_grants() {
    let kit = Kit::start().await;
    let project = kit.db_project("shop").await;
    kit.db_grant(project, "storage").await;
    kit.db_grant(project, "auth").await;
    assert_eq!(kit.database.example("grants", &[&project.to_string()]), "auth\nstorage\n");
}

use crate::kit::{Kit, site};

#[tokio::test(flavor = "multi_thread")]
async fn the_example_prints_the_nodes() {
    let kit = Kit::start().await;
    let node = kit.node("edge").await.node.id;
    kit.converge(kit.project(), Some(site(7))).await;
    assert_eq!(kit.database.example("nodes", &[]), format!("{node} edge 1\n"));
}

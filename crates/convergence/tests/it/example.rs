use crate::kit::{Kit, site};

#[tokio::test(flavor = "multi_thread")]
async fn example_prints_nodes() {
    let kit = Kit::start().await;
    let node = kit.add_node("edge").await.node.id;
    kit.set_site(kit.new_project(), Some(site(7))).await;
    assert_eq!(kit.database.example("nodes", &[]), format!("{node} edge 1\n"));
}

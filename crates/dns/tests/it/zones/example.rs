use super::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn the_example_lists_zones() {
    let kit = Kit::start().await;
    let said = kit.database.example("zones", &[&kit.org.to_string()]);
    assert_eq!(said, format!("example.org {} DNSSEC off\n", kit.served().await.serial));
}

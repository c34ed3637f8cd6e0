use super::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn zones_example_lists_zones() {
    let kit = Kit::start().await;
    let output = kit.database.example("zones", &[&kit.org.to_string()]);
    assert_eq!(output, format!("example.org {} DNSSEC off\n", kit.served().await.serial));
}

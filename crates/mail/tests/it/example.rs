use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn log_example_prints_the_mails() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    kit.send(shop, &["ada@example.org", "bob@example.org"]).await;
    let line = "out  sent  noreply@shop.acme.mail.example  ada@example.org bob@example.org\n";
    assert_eq!(kit.database.example("log", &[&shop.project.to_string()]), line);
}

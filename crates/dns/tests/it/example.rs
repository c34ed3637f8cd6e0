use std::process::Command;

use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn the_example_lists_zones() {
    let kit = Kit::new().await;
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).unwrap().join("examples/zones");
    let mut list = Command::new(example);
    list.env("SVC_DATABASE_URL", kit.database.url()).arg(kit.org.to_string());
    let said = String::from_utf8(list.output().unwrap().stdout).unwrap();
    assert_eq!(said, format!("example.org {} DNSSEC off\n", kit.served().await.serial));
}

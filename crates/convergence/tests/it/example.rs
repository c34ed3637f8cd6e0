use std::process::Command;

use crate::kit::{Kit, digest, site};

#[tokio::test(flavor = "multi_thread")]
async fn the_example_prints_what_a_node_is_to_serve() {
    let kit = Kit::start().await;
    let node = kit.node("edge").await.node.id;
    let (shop, blog) = (kit.project(), kit.project());
    kit.converge(shop, Some(site(7))).await;
    kit.converge(blog, Some(site(1))).await;
    kit.converge(blog, None).await;

    // Cargo puts examples beside the folder that holds the tests.
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).unwrap().join("examples/desired");
    let output = Command::new(&example)
        .arg(node.to_string())
        .env("SVC_DATABASE_URL", kit.database.url())
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}; `cargo test` without `--test` builds it", example.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let served = format!("{shop} 7 {} shop.example www.example.org", digest(7));
    let expected = format!("revision 4\n{served}\n{blog} no longer\n");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

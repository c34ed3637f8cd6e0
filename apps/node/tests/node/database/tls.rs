//! TLS to the Postgres of the node.

use std::fs;

use super::kit::{Kit, eventually, number};

#[tokio::test(flavor = "multi_thread")]
async fn node_uses_verified_tls() {
    let certificate = sandbox::Certificate::generate_for(&["localhost"]);
    let other = sandbox::Certificate::generate_for(&["localhost"]);
    let Some(mut kit) = Kit::start_with_tls(&certificate).await else { return };
    // The first certificate has the wrong name, the second one the wrong authority.
    let root = kit.dir.path().join("root.pem");
    for (host, authority) in [("127.0.0.1", certificate.authority()), ("localhost", other.authority())] {
        fs::write(&root, authority).unwrap();
        kit.start_node_at(host, &root);
        eventually("the refusal", async || kit.node.log().contains("invalid peer certificate")).await;
        let admin = kit.superuser("postgres").await;
        assert_eq!(number(&admin, "SELECT count(*) FROM pg_database WHERE datname = 'svc_node'").await, 0, "{host}");
        kit.node.kill();
    }
    fs::write(&root, certificate.authority()).unwrap();
    kit.start_node_at("localhost", &root);
    kit.enable("prj_a").await;
    let admin = kit.superuser("svc_node").await;
    let sessions =
        "SELECT count(*) FROM pg_stat_activity a JOIN pg_stat_ssl s USING (pid) WHERE a.application_name = 'svc-node'";
    assert!(number(&admin, &format!("{sessions} AND s.ssl")).await > 0);
    assert_eq!(number(&admin, &format!("{sessions} AND NOT s.ssl")).await, 0);
    // `pg_dump` and `pg_restore` use TLS too.
    let generation = kit.generation("prj_a").await;
    kit.restore("prj_a", &generation).await;
}

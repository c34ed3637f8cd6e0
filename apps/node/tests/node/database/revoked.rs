//! A node whose credential is rejected.

use super::kit::{Kit, PASSWORD, eventually};
use crate::control_plane::TOKEN;

#[tokio::test(flavor = "multi_thread")]
async fn revoked_node_closes_all_databases() {
    let Some(mut kit) = Kit::start().await else { return };
    for project in ["prj_a", "prj_b"] {
        kit.enable(project).await;
    }
    let token = kit.add_token("prj_a", None);
    kit.applied("prj_a").await;
    let database = kit.name("prj_a");
    let session = kit.session("prj_a").await;
    let grant = format!("CREATE TABLE t (); REVOKE ALL ON t FROM PUBLIC; GRANT SELECT ON t TO {token}");
    session.batch_execute(&grant).await.unwrap();
    let privileges = kit.dump("prj_a", &["--schema-only"]);
    kit.core.accept("svc_nod_another");
    // This change ends the current poll.
    kit.change("prj_b", |_| ());
    for (project, login) in [("prj_a", kit.app("prj_a")), ("prj_a", token.clone()), ("prj_b", kit.app("prj_b"))] {
        let database = kit.name(project);
        eventually("the refusal", async || kit.log_in(&login, PASSWORD, &database).await.is_err()).await;
    }
    eventually("the end of the session", async || session.batch_execute("SELECT").await.is_err()).await;
    // The logins stay closed after a restart.
    kit.restart_node();
    eventually("the rejection", async || kit.node.log().contains("rejects the credential of this node")).await;
    assert!(kit.log_in(&token, PASSWORD, &database).await.is_err());

    kit.core.accept(TOKEN);
    for (project, login) in [("prj_a", kit.app("prj_a")), ("prj_a", token), ("prj_b", kit.app("prj_b"))] {
        let database = kit.name(project);
        eventually("a login", async || kit.log_in(&login, PASSWORD, &database).await.is_ok()).await;
    }
    assert_eq!(kit.dump("prj_a", &["--schema-only"]), privileges);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejections_before_and_after_a_restore_are_not_consecutive() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let desired = kit.desired("prj_a").clone();
    let restored = protocol::Database { revision: desired.revision + 1, ..desired };
    // The restored control plane first rejects two polls, then returns its lower revision, and then rejects the relist.
    kit.core.reject_polls([true, true, false, true]);
    kit.core.restore_with_part("prj_a", "database", serde_json::to_value(&restored).unwrap());
    kit.reported("prj_a", "the restored revision", |report| report.revision == restored.revision).await;
    let log = kit.node.log();
    assert!(!log.contains("rejects the credential of this node"), "{log}");
}

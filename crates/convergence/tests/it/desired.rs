//! What a node is told: everything, what changed, or that it asks in vain.

use std::time::Duration;

use convergence::ConvergenceError;
use kernel::{Failure as _, ProjectId};
use protocol::{Change, Desired, SCHEMA};
use serde_json::json;

use crate::kit::{Kit, digest, platform, site};

#[tokio::test(flavor = "multi_thread")]
async fn since_nothing_is_everything_and_since_a_revision_what_changed() {
    let kit = Kit::start().await;
    let node = kit.node("edge").await.node.id;
    let empty = Desired { schema: SCHEMA, revision: 1, full: true, batch: 0, platform: platform(), parts: vec![] };
    assert_eq!(kit.desired(node, 0).await, empty);

    let [a, b, c] = [(); 3].map(|()| kit.project());
    for project in [a, b, c] {
        kit.converge(project, Some(site(1))).await;
    }
    kit.converge(a, Some(site(2))).await;
    kit.converge(b, None).await;
    let placed = |project: ProjectId, revision, version: Option<i32>| {
        Change::new(project.to_string(), revision, version.map(site).as_ref()).unwrap()
    };
    let changes = [placed(c, 4, Some(1)), placed(a, 5, Some(2)), placed(b, 6, None)];
    for (since, full, parts) in [
        // What is no longer to be served is said until the next decision: a node may have missed it.
        (0, true, &changes[..]),
        (1, false, &changes[..]),
        (3, false, &changes[..]),
        (4, false, &changes[1..]),
        (5, false, &changes[2..]),
        (6, false, &[]),
    ] {
        let expected =
            Desired { schema: SCHEMA, revision: 6, full, batch: 0, platform: platform(), parts: parts.to_vec() };
        assert_eq!(kit.desired(node, since).await, expected, "since {since}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_ahead_of_a_restored_database_is_told_at_once() {
    let kit = Kit::start().await;
    let node = kit.node("edge").await.node.id;
    kit.converge(kit.project(), Some(site(1))).await;
    // Not after the wait: the node asks for everything as soon as it sees the smaller revision.
    let waiting = kit.convergence.desired(node, 40, Duration::from_secs(30));
    let answer = tokio::time::timeout(Duration::from_secs(15), waiting).await.unwrap().unwrap();
    assert_eq!((answer.revision, answer.full, answer.parts), (2, false, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_gone_is_told_so() {
    let kit = Kit::start().await;
    let nowhere = kit.store.world().id();
    for since in [0, 1] {
        let refused = kit.convergence.desired(nowhere, since, Duration::from_secs(30)).await.unwrap_err();
        assert!(matches!(refused, ConvergenceError::UnknownNode));
        assert_eq!(refused.code(), &kernel::Code::UNAUTHENTICATED);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_has_the_shape_that_nodes_read() {
    let kit = Kit::start().await;
    let node = kit.node("edge").await.node.id;
    let (shop, blog) = (kit.project(), kit.project());
    kit.converge(shop, Some(site(3))).await;
    kit.converge(blog, None).await;
    let expected = json!({
        "schema": 3,
        "revision": 3,
        "full": true,
        "batch": 0,
        "platform": { "dashboardUrl": "https://dashboard.example", "https": true },
        "parts": [
            { "project": shop, "revision": 2, "part": "site", "desired": {
                "hostnames": ["shop.example", "www.example.org"], "bundle": digest(3), "sizeBytes": 1003, "version": 3,
                "access": { "mode": "public", "password": null, "bypass": null, "version": 0 },
            } },
            { "project": blog, "revision": 3, "part": "site", "desired": null },
        ],
    });
    assert_eq!(serde_json::to_value(kit.desired(node, 0).await).unwrap(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_nobody_can_read_is_our_fault_and_not_an_empty_answer() {
    let kit = Kit::start().await;
    let node = kit.node("edge").await.node.id;
    kit.converge(kit.project(), Some(site(1))).await;
    kit.db_execute("UPDATE convergence.parts SET desired = '{\"hostnames\": 1}'").await;
    let failed = kit.convergence.desired(node, 0, Duration::ZERO).await.unwrap_err();
    assert_eq!(failed.code(), &kernel::Code::INTERNAL);
}

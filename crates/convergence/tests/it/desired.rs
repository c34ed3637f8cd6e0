//! The response to a poll: the full state, the changes, or an error.

use std::time::Duration;

use convergence::ConvergenceError;
use kernel::{ApiError as _, NodeId, ProjectId};
use protocol::{Change, Desired, SCHEMA, UnavailablePart};
use serde_json::json;

use crate::kit::{Kit, digest, platform, site, sites};

#[tokio::test(flavor = "multi_thread")]
async fn since_selects_full_state_or_changes() {
    let kit = Kit::start().await;
    let node = kit.add_node("edge").await.node.id;
    let state = |revision, full, parts| {
        let (platform, unavailable) = (platform(), vec![]);
        Desired { schema: SCHEMA, revision, full, has_more: false, batch: 0, platform, parts, unavailable }
    };
    assert_eq!(kit.desired(node, 0).await, state(1, true, vec![]));

    let [a, b, c] = [(); 3].map(|()| kit.new_project());
    for project in [a, b, c] {
        kit.set_site(project, Some(site(1))).await;
    }
    kit.set_site(a, Some(site(2))).await;
    kit.set_site(b, None).await;
    let change = |project: ProjectId, revision, version: Option<i32>| {
        Change::new(project.to_string(), revision, version.map(site).as_ref()).unwrap()
    };
    let changes = [change(c, 4, Some(1)), change(a, 5, Some(2)), change(b, 6, None)];
    for (since, full, parts) in [
        // A removed part stays listed until its next change, because a node may have missed the removal.
        (0, true, &changes[..]),
        (1, false, &changes[..]),
        (3, false, &changes[..]),
        (4, false, &changes[1..]),
        (5, false, &changes[2..]),
        (6, false, &[]),
    ] {
        assert_eq!(kit.desired(node, since).await, state(6, full, parts.to_vec()), "since {since}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn state_of_many_parts_has_pages() {
    let kit = Kit::start().await;
    let node = kit.add_node("edge").await.node.id;
    let insert = format!(
        "INSERT INTO convergence.placements (project_id, node_id, state, epoch, created_at) \
             SELECT gen_random_uuid(), '{0}', 'active', 1, now() FROM generate_series(1, 12000); \
         INSERT INTO convergence.parts (project_id, part, node_id, revision, desired, updated_at) \
             SELECT project_id, 'unknown', '{0}', 1 + row_number() OVER (), '{{}}', now() FROM convergence.placements; \
         UPDATE convergence.nodes SET revision = 12001",
        node.as_uuid()
    );
    kit.db_execute(&insert).await;
    assert_eq!(read_pages(&kit, node).await, [(5000, 5001), (5000, 10_001), (2000, 12_001)]);
    // No page follows a full last page.
    let remove = "DELETE FROM convergence.parts WHERE revision > 10001; UPDATE convergence.nodes SET revision = 10001";
    kit.db_execute(remove).await;
    assert_eq!(read_pages(&kit, node).await, [(5000, 5001), (5000, 10_001)]);
}

/// Reads all pages of the full state, whose parts have each revision from 2. Returns their numbers of parts and their
/// revisions.
async fn read_pages(kit: &Kit, node: NodeId) -> Vec<(usize, i64)> {
    let (mut pages, mut since, mut next) = (Vec::new(), 0, 2);
    loop {
        let page = kit.desired(node, since).await;
        assert_eq!(page.full, since == 0);
        for part in &page.parts {
            assert_eq!(part.revision, next);
            next += 1;
        }
        since = page.revision;
        pages.push((page.parts.len(), page.revision));
        if !page.has_more {
            break;
        }
    }
    assert_eq!(kit.desired(node, since).await.parts, []);
    pages
}

#[tokio::test(flavor = "multi_thread")]
async fn poll_ahead_of_restored_database_returns_immediately() {
    let kit = Kit::start().await;
    let node = kit.add_node("edge").await.node.id;
    kit.set_site(kit.new_project(), Some(site(1))).await;
    // The node asks for changes after a revision that does not exist. The poll returns immediately, so that the node
    // sees the lower revision and relists.
    let poll = kit.convergence.desired(node, 40, Duration::from_secs(30));
    let response = tokio::time::timeout(Duration::from_secs(15), poll).await.unwrap().unwrap();
    assert_eq!((response.revision, response.full, response.parts), (2, false, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_node_is_rejected() {
    let kit = Kit::start().await;
    let unknown = kit.store.clock_rng().id();
    for since in [0, 1] {
        let error = kit.convergence.desired(unknown, since, Duration::from_secs(30)).await.unwrap_err();
        assert!(matches!(error, ConvergenceError::UnknownNode));
        assert_eq!(error.code(), &kernel::Code::UNAUTHENTICATED);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn desired_state_has_documented_shape() {
    let kit = Kit::start().await;
    let node = kit.add_node("edge").await.node.id;
    let (shop, blog) = (kit.new_project(), kit.new_project());
    kit.set_site(shop, Some(site(3))).await;
    kit.set_site(blog, Some(site(1))).await;
    kit.set_site(blog, None).await;
    let expected = json!({
        "schema": 7,
        "revision": 4,
        "full": true,
        "hasMore": false,
        "batch": 0,
        "platform": {
            "dashboardUrl": "https://dashboard.example", "siteUrl": "https://{hostname}:8443", "certificates": [],
        },
        "parts": [
            { "project": shop, "revision": 2, "part": "site", "desired": {
                "owner": "usr_1", "hostnames": ["shop.example", "www.example.org"], "hsts": [], "bundle": digest(3),
                "sizeBytes": 1003, "version": 3,
                "access": { "mode": "public", "password": null, "bypass": null, "version": 0 },
            } },
            { "project": blog, "revision": 4, "part": "site", "desired": null },
        ],
        "unavailable": [],
    });
    assert_eq!(serde_json::to_value(kit.desired(node, 0).await).unwrap(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn corrupt_row_is_listed_and_blocks_no_other_part() {
    let kit = Kit::start().await;
    let node = kit.add_node("edge").await.node.id;
    let [broken, whole] = [(); 2].map(|()| kit.new_project());
    for project in [broken, whole] {
        kit.set_site(project, Some(site(1))).await;
    }
    kit.db_execute("UPDATE convergence.parts SET desired = '{\"hostnames\": 1}' WHERE revision = 2").await;
    let desired = kit.desired(node, 0).await;
    assert_eq!(desired.unavailable, [UnavailablePart { project: broken.to_string(), part: "site".to_owned() }]);
    assert!(sites(&desired).iter().map(|site| site.project).eq([whole]));
    // A later change repairs the row.
    kit.set_site(broken, Some(site(2))).await;
    let desired = kit.desired(node, desired.revision).await;
    assert_eq!((sites(&desired).len(), desired.unavailable), (1, vec![]));
}

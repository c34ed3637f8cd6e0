//! A node may fetch only the bundles in its desired state.

use convergence::{Convergence, ConvergenceError, PartRepository as _};
use diesel_async::AsyncConnection as _;
use kernel::{ApiError as _, Digest, NodeId};

use crate::kit::{Kit, digest, site};

async fn may_fetch(convergence: &Convergence, node: NodeId, bundle: Digest) -> bool {
    match convergence.authorize_bundle(node, bundle).await {
        Ok(()) => true,
        Err(error) => {
            assert!(matches!(error, ConvergenceError::NotPlacedOnNode), "{error:?}");
            assert_eq!(error.code(), &kernel::Code::NOT_FOUND);
            false
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_may_fetch_only_bundles_in_its_desired_state() {
    let kit = Kit::start().await;
    let (shop, blog) = (kit.new_project(), kit.new_project());
    // The project is pending, so no node may fetch its bundle yet.
    kit.set_site(shop, Some(site(1))).await;
    let home = kit.add_node("home").await.node.id;
    let other = kit.add_node("other").await.node.id;
    kit.set_site(blog, Some(site(2))).await;

    let may = async |node, version| may_fetch(&kit.convergence, node, digest(version)).await;
    assert!(may(home, 1).await && !may(other, 1).await);
    assert!(may(other, 2).await && !may(home, 2).await);
    assert!(!may(home, 3).await && !may(kit.store.clock_rng().id(), 1).await);

    // The bundle is replaced, then removed.
    kit.set_site(shop, Some(site(3))).await;
    assert!(may(home, 3).await && !may(home, 1).await);
    kit.set_site(shop, None).await;
    assert!(!may(home, 3).await);
    // Two projects use the same bundle. A node may fetch it as long as one of the projects on that node uses it.
    kit.set_site(shop, Some(site(2))).await;
    assert!(may(home, 2).await && may(other, 2).await);
    kit.set_site(blog, None).await;
    assert!(may(home, 2).await && !may(other, 2).await);
}

/// Inserts 2000 sites of the node.
const FILL: &str = "\
    INSERT INTO convergence.placements (project_id, node_id, state, epoch, created_at) \
    SELECT gen_random_uuid(), id, 'active', 1, now() FROM convergence.nodes, generate_series(1, 2000); \
    INSERT INTO convergence.parts (project_id, part, node_id, revision, desired, updated_at) \
    SELECT project_id, 'site', node_id, 1000 + row_number() OVER (), \
        jsonb_build_object('bundle', project_id, 'hostnames', repeat('x', 300)), now() \
    FROM convergence.placements p WHERE NOT EXISTS (SELECT FROM convergence.parts c WHERE c.project_id = p.project_id); \
    ANALYZE convergence.parts";

#[tokio::test(flavor = "multi_thread")]
async fn bundle_is_found_without_reading_the_other_sites_of_the_node() {
    let kit = Kit::start().await;
    let node = kit.add_node("home").await.node.id;
    kit.set_site(kit.new_project(), Some(site(1))).await;
    kit.db_execute(FILL).await;
    kit.database.close_sessions().await;
    let read = "SELECT coalesce(sum(idx_tup_fetch + seq_tup_read), 0) FROM pg_stat_user_tables WHERE relname = 'parts'";
    let before = kit.db_number(read).await;
    // Postgres updates the statistics when the connection closes.
    let mut connection = store::Connection::establish(&kit.database.url()).await.unwrap();
    assert!(connection.bundle_is_placed(node, digest(1)).await.unwrap());
    assert!(!connection.bundle_is_placed(node, digest(2)).await.unwrap());
    drop(connection);
    kit.database.wait_for_end_of_sessions("").await;
    let read = kit.db_number(read).await - before;
    assert!((1..100).contains(&read), "{read} rows");
}

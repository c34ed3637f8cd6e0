//! A node may fetch only the bundles in its desired state.

use convergence::{Convergence, ConvergenceError};
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

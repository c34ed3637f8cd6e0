//! Which bundles a node may fetch: those that it is to serve out of.

use convergence::{Convergence, ConvergenceError};
use kernel::{Digest, Failure as _, NodeId};

use crate::kit::{Kit, digest, site};

async fn may_fetch(convergence: &Convergence, node: NodeId, bundle: Digest) -> bool {
    match convergence.bundle_for(node, bundle).await {
        Ok(()) => true,
        Err(refused) => {
            assert!(matches!(refused, ConvergenceError::NotPlacedHere), "{refused:?}");
            assert_eq!(refused.code(), &kernel::Code::NOT_FOUND);
            false
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_may_fetch_what_it_is_to_serve_and_nothing_else() {
    let kit = Kit::start().await;
    let (shop, blog) = (kit.project(), kit.project());
    // Waits for a node: nobody's yet.
    kit.converge(shop, Some(site(1))).await;
    let home = kit.node("home").await.node.id;
    let other = kit.node("other").await.node.id;
    kit.converge(blog, Some(site(2))).await;

    let may = async |node, version| may_fetch(&kit.convergence, node, digest(version)).await;
    assert!(may(home, 1).await && !may(other, 1).await);
    assert!(may(other, 2).await && !may(home, 2).await);
    assert!(!may(home, 3).await && !may(kit.store.world().id(), 1).await);

    // Replaced, and taken out of service.
    kit.converge(shop, Some(site(3))).await;
    assert!(may(home, 3).await && !may(home, 1).await);
    kit.converge(shop, None).await;
    assert!(!may(home, 3).await);
    // The same bundle in two projects is one node's as long as one of them is there.
    kit.converge(shop, Some(site(2))).await;
    assert!(may(home, 2).await && may(other, 2).await);
    kit.converge(blog, None).await;
    assert!(may(home, 2).await && !may(other, 2).await);
}

//! Nodes and their credentials.

use convergence::{ConvergenceError, NodeKind, NodeName};
use kernel::audit::Event;
use kernel::{ApiError as _, Digest, Token, TokenKind};
use serde_json::json;
use testkit::Audit;

use crate::kit::{Kit, operator};

fn audit_row(event: &'static str, target: impl ToString, name: &str) -> Audit {
    let data = match event {
        "node.add" => json!({ "name": name, "kind": "app" }),
        _ => json!({ "name": name }),
    };
    Audit::of(&operator(), Event::of_platform(event, target, data))
}

#[tokio::test(flavor = "multi_thread")]
async fn node_authenticates_with_its_credential() {
    let kit = Kit::start().await;
    let now = kit.store.clock_rng().now();
    let (one, two) = (kit.add_node("edge-1").await, kit.add_node("edge-2").await);
    assert_eq!((one.node.name.as_str(), one.node.created_at), ("edge-1", now));
    for node in [&one, &two] {
        assert_eq!(kit.nodes.authenticate(&node.token, NodeKind::App).await.unwrap(), node.node.id);
        assert_eq!(Token::parse(TokenKind::Node, node.token.reveal()).as_ref(), Some(&node.token));
    }
    let unknown = Token::mint(TokenKind::Node, kit.store.clock_rng());
    let error = kit.nodes.authenticate(&unknown, NodeKind::App).await.unwrap_err();
    assert_eq!(error.code(), &kernel::Code::UNAUTHENTICATED);
    let mut expected = [audit_row("node.add", one.node.id, "edge-1"), audit_row("node.add", two.node.id, "edge-2")];
    let mut audited = kit.audited().await;
    audited.sort_by(|a, b| a.target.cmp(&b.target));
    expected.sort_by(|a, b| a.target.cmp(&b.target));
    assert_eq!(audited, expected);

    // The database contains the SHA-256 of the whole credential, and never its plain text.
    let hash = Digest::of(one.token.reveal().as_bytes()).hex();
    let hashed = format!("SELECT count(*) FROM convergence.nodes WHERE token_hash = '\\x{hash}'");
    assert_eq!(kit.db_number(&hashed).await, 1);
    for table in ["convergence.nodes", "store.audit"] {
        let plain = format!("SELECT count(*) FROM {table} t WHERE t::text LIKE '%svc_nod_%'");
        assert_eq!(kit.db_number(&plain).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn taken_name_is_rejected() {
    let kit = Kit::start().await;
    let first = kit.add_node("edge").await;
    kit.audited().await;
    let taken = kit.nodes.add(&operator(), first.node.name.clone(), NodeKind::App).await.unwrap_err();
    assert!(matches!(&taken, ConvergenceError::NodeNameTaken(name) if *name == first.node.name));
    assert_eq!(taken.code(), &ConvergenceError::NODE_NAME_TAKEN);
    assert_eq!(kit.audited().await, []);
    assert_eq!(kit.nodes.authenticate(&first.token, NodeKind::App).await.unwrap(), first.node.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn renewal_revokes_old_credential() {
    let kit = Kit::start().await;
    let (edge, other) = (kit.add_node("edge").await, kit.add_node("other").await);
    kit.audited().await;
    let renewed = kit.nodes.renew(&operator(), &edge.node.name).await.unwrap();
    assert_eq!(renewed.node, edge.node);
    assert_eq!(kit.audited().await, [audit_row("node.renew", edge.node.id, "edge")]);
    let authenticated = kit.nodes.authenticate(&edge.token, NodeKind::App).await;
    assert!(matches!(authenticated, Err(ConvergenceError::UnknownNode)));
    for node in [&renewed, &other] {
        assert_eq!(kit.nodes.authenticate(&node.token, NodeKind::App).await.unwrap(), node.node.id);
    }

    let unknown = kit.nodes.renew(&operator(), &"new".parse().unwrap()).await;
    assert!(matches!(&unknown, Err(ConvergenceError::NodeNotFound(name)) if name.as_str() == "new"), "{unknown:?}");
    assert_eq!((kit.nodes.list().await.unwrap().len(), kit.audited().await), (2, Vec::new()));
}

#[test]
fn node_name_is_validated() {
    for name in ["a", "edge-1.eu.example", "0", &"x".repeat(63)] {
        assert!(name.parse::<NodeName>().is_ok(), "{name:?}");
    }
    for name in ["", ".a", "-a", "Edge", "a b", "a_b", "a\n", &"x".repeat(64)] {
        assert!(name.parse::<NodeName>().is_err(), "{name:?}");
    }
}

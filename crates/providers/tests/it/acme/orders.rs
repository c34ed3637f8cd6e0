//! Orders that name the certificate that they replace, and renewal information.

use providers::acme::AcmeError;
use serde_json::{Value, json};

use super::server::AcmeServer;
use super::{authority, session};

/// An identifier of a certificate (RFC 9773 section 4.1).
const REPLACED: &str = "aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE";

fn replaced(payloads: &[Value]) -> Vec<Option<&str>> {
    payloads.iter().map(|payload| payload["replaces"].as_str()).collect()
}

#[tokio::test]
async fn refused_replacement_is_ordered_without_it() {
    let server = AcmeServer::start().await;
    let session = session(&server).await.unwrap();
    let create = async || session.create_order("www.example.org", Some(REPLACED)).await.map(drop);
    // The authority ignores the certificate.
    create().await.unwrap();
    assert_eq!(replaced(&server.payloads("/new-order")), [Some(REPLACED), None]);
    let refusals = [("409", "alreadyReplaced"), ("409", "malformed"), ("404", "malformed"), ("403", "unauthorized")];
    for (status, kind) in refusals {
        let problem = json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": "Nope." });
        server.respond("/new-order", status, "", &problem.to_string());
        assert!(matches!(create().await, Err(AcmeError::Refused(_))), "{status} {kind}");
        assert_eq!(replaced(&server.payloads("/new-order")), [Some(REPLACED), None], "{status} {kind}");
    }
    // The account is unauthorized, with and without the certificate.
    server.respond("/account", "200", "", &json!({ "status": "deactivated" }).to_string());
    assert!(matches!(create().await, Err(AcmeError::Account(_))));
    assert_eq!(replaced(&server.payloads("/new-order")), [Some(REPLACED), None]);
    // Other failures concern the order.
    for (status, body) in [("429", ""), ("500", "<html>"), ("503", "<html>")] {
        server.respond("/new-order", status, "", body);
        assert!(create().await.is_err());
        assert_eq!(replaced(&server.payloads("/new-order")), [Some(REPLACED)], "{status}");
    }
    server.close("/new-order");
    assert!(create().await.is_err());
    assert_eq!(replaced(&server.payloads("/new-order")), [Some(REPLACED)]);
}

#[tokio::test]
async fn renewal_window_is_read() {
    let server = AcmeServer::start().await;
    let authority = authority(&server);
    let window = async || authority.renewal_window("a.b").await;
    let info = |start: &str, end: &str| json!({ "suggestedWindow": { "start": start, "end": end } }).to_string();
    server.respond("/renewal/a.b", "200", "", &info("2026-11-26T10:00:00Z", "2026-11-27T10:00:00.5+01:00"));
    let (start, end) = window().await.unwrap().unwrap();
    assert_eq!((start.to_rfc3339(), end.timestamp_millis() % 1000), ("2026-11-26T10:00:00+00:00".to_owned(), 500));
    server.respond("/renewal/a.b", "200", "", &info("2026-11-27T10:00:00Z", "2026-11-26T10:00:00Z"));
    assert_eq!(window().await, Ok(None));
    for (status, body) in [("404", ""), ("500", "<html>"), ("200", "{}"), ("200", "<html>")] {
        server.respond("/renewal/a.b", status, "", body);
        assert!(matches!(window().await, Err(AcmeError::Unavailable(_))), "{status} {body}");
    }
    server.respond("/directory", "200", "", "{}");
    assert_eq!(window().await, Ok(None));
}

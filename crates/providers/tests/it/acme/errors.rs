//! The classification of errors, for each call of an order.

use providers::acme::{AcmeChallengeType, AcmeError, AcmeSession};
use serde_json::json;

use super::server::AcmeServer;
use super::{authority, session};

/// The time of the responses, and an hour later.
const NOW: &str = "Date: Thu, 26 Nov 2026 10:00:00 GMT\r\n";
const IN_AN_HOUR: &str = "Date: Thu, 26 Nov 2026 10:00:00 GMT\r\nRetry-After: Thu, 26 Nov 2026 11:00:00 GMT\r\n";

const PAGE: &str = "<html>Bad gateway</html>";

/// Returns a problem without the optional status.
fn problem(kind: &str) -> String {
    json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": "Nope." }).to_string()
}

fn unavailable(message: &str) -> AcmeError {
    AcmeError::Unavailable(message.to_owned())
}

fn refused(kind: &str) -> AcmeError {
    AcmeError::Refused(format!("Nope. ({kind})"))
}

fn limited(message: &str, retry_after: Option<i64>) -> AcmeError {
    AcmeError::RateLimited { message: message.to_owned(), retry_after }
}

fn overloaded(message: &str, retry_after: Option<i64>) -> AcmeError {
    AcmeError::Overloaded { message: message.to_owned(), retry_after }
}

/// The responses whose meaning is the same for each signed request.
fn table() -> Vec<(&'static str, &'static str, String, AcmeError)> {
    let page = || PAGE.to_owned();
    let mut table = vec![
        ("429", "Retry-After: 120\r\n", problem("rateLimited"), limited("Nope. (rateLimited)", Some(120))),
        ("429", IN_AN_HOUR, problem("rateLimited"), limited("Nope. (rateLimited)", Some(3600))),
        ("429", "Retry-After: soon\r\n", problem("rateLimited"), limited("Nope. (rateLimited)", None)),
        ("429", NOW, problem("malformed"), limited("Nope. (malformed)", None)),
        ("429", "Retry-After: 5\r\n", page(), limited("responded with status 429", Some(5))),
        ("403", "", problem("rateLimited"), limited("Nope. (rateLimited)", None)),
        ("503", "Retry-After: 30\r\n", problem("serverInternal"), overloaded("Nope. (serverInternal)", Some(30))),
        ("503", "", page(), overloaded("responded with status 503", None)),
        ("503", "", problem("rateLimited"), overloaded("Nope. (rateLimited)", None)),
        ("500", "", problem("serverInternal"), unavailable("Nope. (serverInternal)")),
        ("500", "", problem("malformed"), unavailable("Nope. (malformed)")),
        ("400", "", problem("serverInternal"), unavailable("Nope. (serverInternal)")),
        ("400", "", problem("badNonce"), unavailable("Nope. (badNonce)")),
        ("502", "", page(), unavailable("responded with status 502")),
        ("403", "", page(), unavailable("responded with status 403")),
        ("400", "", page(), unavailable("responded with status 400")),
        ("302", "Location: /\r\n", page(), unavailable("responded with a redirect, status 302")),
        ("400", "", problem("accountDoesNotExist"), AcmeError::Account("Nope. (accountDoesNotExist)".to_owned())),
        ("403", "", problem("unauthorized"), refused("unauthorized")),
    ];
    for kind in [
        "badCSR",
        "badPublicKey",
        "badSignatureAlgorithm",
        "caa",
        "compound",
        "externalAccountRequired",
        "invalidContact",
        "rejectedIdentifier",
        "unsupportedIdentifier",
        "userActionRequired",
    ] {
        table.push(("403", "", problem(kind), refused(kind)));
    }
    table
}

async fn create_order(session: &AcmeSession) -> Result<(), AcmeError> {
    session.create_order("www.example.org", None).await.map(drop)
}

#[tokio::test]
async fn errors_of_orders_are_classified() {
    let server = AcmeServer::start().await;
    let session = session(&server).await.unwrap();
    for (status, headers, body, expected) in table() {
        for path in ["/new-order", "/authorization"] {
            server.respond(path, status, headers, &body);
            assert_eq!(create_order(&session).await, Err(expected.clone()), "{path} {status} {headers} {body}");
            server.restore();
        }
    }
    server.close("/new-order");
    let closed = create_order(&session).await;
    assert!(matches!(closed, Err(AcmeError::Unavailable(_))), "{closed:?}");
    server.restore();
    create_order(&session).await.unwrap();
}

#[tokio::test]
async fn errors_of_steps_are_classified() {
    let server = AcmeServer::start().await;
    let session = session(&server).await.unwrap();
    let url = session.create_order("www.example.org", None).await.unwrap().url;
    for (status, headers, body, expected) in table() {
        let is_unauthorized = expected == refused("unauthorized");
        server.respond("/challenge", status, headers, &body);
        let validated = session.validate(&url, AcmeChallengeType::Dns01).await;
        assert_eq!(validated, Err(expected.clone()), "validate: {status} {headers} {body}");
        server.respond("/finalize", status, headers, &body);
        assert_eq!(session.finalize(&url, b"").await, Err(expected.clone()), "finalize: {status} {headers} {body}");
        // An order of another account is unauthorized, so that this account has no such order.
        let expected = if is_unauthorized { AcmeError::NoSuchOrder } else { expected };
        server.respond("/order", status, headers, &body);
        assert_eq!(session.order(&url).await, Err(expected), "order: {status} {headers} {body}");
        server.restore();
    }
    server.respond("/order", "404", "", &problem("malformed"));
    assert_eq!(session.order(&url).await, Err(AcmeError::NoSuchOrder));
}

#[tokio::test]
async fn limits_of_shared_resources_are_an_overload() {
    let server = AcmeServer::start().await;
    let authority = authority(&server);
    let account = authority.create_account().await.unwrap();
    let open = async || authority.open(&account).await.map(drop);
    let create = async || authority.create_account().await.map(drop);
    for body in [problem("rateLimited"), PAGE.to_owned()] {
        server.respond("/directory", "429", "Retry-After: 60\r\n", &body);
        for result in [open().await, create().await] {
            assert_eq!(result, Err(overloaded("responded with status 429", Some(60))), "{body}");
        }
        server.restore();
        server.respond("/nonce", "429", "Retry-After: 60\r\n", "");
        assert_eq!(create().await, Err(overloaded("responded with status 429", Some(60))));
        server.restore();
    }
    server.respond("/nonce", "500", "", "");
    assert_eq!(create().await, Err(unavailable("responded with status 500")));
    server.restore();
    for (status, headers, body, expected) in table() {
        server.respond("/new-account", status, headers, &body);
        assert_eq!(create().await, Err(expected), "{status} {headers} {body}");
    }
    server.restore();
    for (status, body) in [("500", PAGE), ("404", "{}"), ("200", PAGE), ("200", "[]")] {
        server.respond("/directory", status, "", body);
        for result in [open().await, create().await] {
            assert!(matches!(result, Err(AcmeError::Unavailable(_))), "{status} {body}: {result:?}");
        }
    }
}

/// The type `unauthorized` concerns the account only if a request for the account confirms it.
#[tokio::test]
async fn rejected_account_is_recognized() {
    let server = AcmeServer::start().await;
    let session = session(&server).await.unwrap();
    let object = |status: &str| json!({ "status": status }).to_string();
    let account = || AcmeError::Account("Nope. (unauthorized)".to_owned());
    for (status, body, expected) in [
        ("200", object("deactivated"), account()),
        ("200", object("revoked"), account()),
        ("200", object("valid"), refused("unauthorized")),
        ("200", object("unknown"), refused("unauthorized")),
        ("403", problem("unauthorized"), account()),
        ("400", problem("accountDoesNotExist"), account()),
        ("500", problem("serverInternal"), refused("unauthorized")),
        ("502", PAGE.to_owned(), refused("unauthorized")),
    ] {
        server.respond("/new-order", "403", "", &problem("unauthorized"));
        server.respond("/account", status, "", &body);
        assert_eq!(create_order(&session).await, Err(expected), "{status} {body}");
    }
}

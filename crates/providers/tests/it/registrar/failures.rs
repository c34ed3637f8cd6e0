//! Every failure of the registrar.

use std::time::Duration;

use kernel::Secret;
use providers::registrar::{DsRecord, RegistrarClient, RegistrarError, Renewal};
use providers::{Limits, OutboundError};
use sandbox::{RegistrarFault, RegistrarServer};
use tokio::net::TcpListener;

use super::{client, register, with_limits};

const OPERATIONS: [&str; 10] =
    ["check", "register", "read", "nameservers", "renew", "lock", "auth code", "DS list", "DS add", "DS remove"];

/// Calls an operation of a domain.
async fn call(client: &RegistrarClient, operation: &str) -> Result<(), RegistrarError> {
    let (name, digest) = ("shop.com", "ab".repeat(32));
    match operation {
        "check" => client.check(&[name]).await.map(drop),
        "register" => register(client, name, "key").await.map(drop),
        "read" => client.read(name).await.map(drop),
        "nameservers" => client.set_nameservers(name, &["ns1.svc.example".to_owned()]).await,
        "renew" => {
            let renewal = Renewal { name, price_cents: 1_599, years: 1, idempotency_key: "key" };
            client.renew(&renewal).await.map(drop)
        }
        "lock" => client.set_locked(name, true).await.map(drop),
        "auth code" => client.auth_code(name).await.map(drop),
        "DS list" => client.ds_records(name).await.map(drop),
        "DS add" => client.add_ds_record(name, &DsRecord { key_tag: 1, algorithm: 13, digest_type: 2, digest }).await,
        "DS remove" => client.remove_ds_record(name, &digest).await,
        other => panic!("{other}"),
    }
}

fn json(status: u16, body: &str) -> RegistrarFault {
    RegistrarFault::Response(status, "application/json", body.to_owned())
}

#[tokio::test]
async fn statuses_are_mapped_for_every_operation() {
    let server = RegistrarServer::start().await;
    for operation in OPERATIONS {
        for status in [400, 402, 409, 422] {
            server.inject(Some(RegistrarFault::refusal(status)));
            // The registrar sells none of the names.
            let is_empty = (operation, status) == ("check", 422);
            let expected = if is_empty { Ok(()) } else { Err(RegistrarError::Refused(status)) };
            assert_eq!(call(&client(&server), operation).await, expected, "{operation}");
        }
        for status in [401, 403, 405, 410, 451, 500, 501, 502, 503, 504] {
            server.inject(Some(RegistrarFault::refusal(status)));
            let expected = Err(RegistrarError::Failed(OutboundError::Status(status)));
            assert_eq!(call(&client(&server), operation).await, expected, "{operation}");
        }
        // A page of a proxy counts neither as a refusal nor as a missing domain.
        for status in [400, 402, 404, 409, 422, 500, 502] {
            server.inject(Some(RegistrarFault::html(status)));
            let expected = Err(RegistrarError::Failed(OutboundError::Status(status)));
            assert_eq!(call(&client(&server), operation).await, expected, "{operation}");
        }
        server.inject(Some(RegistrarFault::Redirect));
        let expected = Err(RegistrarError::Failed(OutboundError::Redirect(302)));
        assert_eq!(call(&client(&server), operation).await, expected, "{operation}");
        server.inject(Some(RegistrarFault::TooManyRequests));
        let expected = Err(RegistrarError::Failed(OutboundError::Status(429)));
        assert_eq!(call(&client(&server), operation).await, expected, "{operation}");
        server.inject(Some(RegistrarFault::html(200)));
        let expected = Err(RegistrarError::Failed(OutboundError::NotJson));
        assert_eq!(call(&client(&server), operation).await, expected, "{operation}");
        server.inject(Some(RegistrarFault::refusal(404)));
        let expected = if operation == "read" { Ok(()) } else { Err(RegistrarError::NotFound) };
        assert_eq!(call(&client(&server), operation).await, expected, "{operation}");
    }
}

/// The operations whose response is used.
#[tokio::test]
async fn wrong_shapes_are_failures() {
    let server = RegistrarServer::start().await;
    let wrong = Err(RegistrarError::Failed(OutboundError::NotJson));
    for operation in ["check", "register", "read", "renew", "lock", "auth code", "DS list"] {
        for body in ["", "{", "[]", "17", "null", "\"text\"", "{\"domain\":17,\"results\":17,\"dnssec\":17}"] {
            server.inject(Some(json(200, body)));
            assert_eq!(call(&client(&server), operation).await, wrong, "{operation}: {body}");
        }
    }
    let times = r#""createDate":"2026-01-01T00:00:00Z","expireDate":"2027-01-01T00:00:00Z""#;
    let domain = format!(r#""domainName":"shop.com",{times}"#);
    for body in [
        times.to_owned(),
        r#""domainName":"shop.com""#.to_owned(),
        format!(r#""domainName":"other.com",{times}"#),
        domain.replace("2027-01-01T00:00:00Z", "tomorrow"),
        domain.replace("2026-01-01T00:00:00Z", ""),
        format!(r#"{domain},"locked":"yes""#),
        format!(r#"{domain},"nameservers":["a b"]"#),
        format!(r#"{domain},"nameservers":[{}"a"]"#, "\"a\",".repeat(50)),
        format!(r#"{domain},"renewalPrice":-1"#),
    ] {
        server.inject(Some(json(200, &format!("{{{body}}}"))));
        assert_eq!(call(&client(&server), "read").await, wrong, "{body}");
        server.inject(Some(json(200, &format!("{{\"domain\":{{{body}}}}}"))));
        assert_eq!(call(&client(&server), "register").await, wrong, "{body}");
    }
    // No registry renews a domain for nothing.
    for price in ["", r#","renewalPrice":0"#, r#","renewalPrice":"0.00""#, r#","renewalPrice":0.004"#] {
        server.inject(Some(json(200, &format!("{{{domain}{price}}}"))));
        let read = client(&server).read("shop.com").await.unwrap().unwrap();
        assert_eq!((read.locked, read.nameservers, read.renewal_cents), (false, Vec::new(), None), "{price}");
    }
    for code in ["", "a\\u0000b", &"x".repeat(256)] {
        server.inject(Some(json(200, &format!("{{\"authCode\":\"{code}\"}}"))));
        assert_eq!(call(&client(&server), "auth code").await, wrong, "{code}");
    }
}

#[tokio::test]
async fn silent_closed_and_endless_responses_are_failures() {
    let server = RegistrarServer::start().await;
    let limits = Limits { timeout: Duration::from_millis(200), ..Limits::default() };
    for (fault, expected) in
        [(RegistrarFault::Hang, OutboundError::Timeout), (RegistrarFault::HangAfter, OutboundError::Timeout)]
    {
        server.inject(Some(fault));
        for operation in OPERATIONS {
            let result = call(&with_limits(&server, limits), operation).await;
            assert_eq!(result, Err(RegistrarError::Failed(expected.clone())), "{operation}");
        }
    }
    server.inject(Some(RegistrarFault::Large));
    assert_eq!(call(&client(&server), "read").await, Err(RegistrarError::Failed(OutboundError::TooLarge)));
    server.inject(Some(RegistrarFault::Close));
    let closed = call(&client(&server), "read").await;
    assert!(matches!(closed, Err(RegistrarError::Failed(OutboundError::Unreachable(_)))), "{closed:?}");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let client = RegistrarClient::new(&url, "user".to_owned(), Secret::new("hush".to_owned())).unwrap();
    let refused = call(&client, "read").await;
    assert!(matches!(refused, Err(RegistrarError::Failed(OutboundError::Unreachable(_)))), "{refused:?}");
    assert!(!format!("{client:?} {refused:?}").contains("hush"));
}

#[tokio::test]
async fn short_rate_limit_of_the_registrar_is_waited_for() {
    let server = RegistrarServer::start().await;
    server.inject(Some(RegistrarFault::TooManyRequestsOnce));
    assert_eq!(client(&server).read("shop.com").await, Ok(None));
    assert_eq!(server.calls(), ["Read shop.com: 429", "Read shop.com: 404"]);
}

#[tokio::test]
async fn wrong_credentials_are_a_failure() {
    let server = RegistrarServer::start().await;
    let url = server.url().parse().unwrap();
    let client = RegistrarClient::new(&url, "other".to_owned(), Secret::new("hush".to_owned())).unwrap();
    for operation in OPERATIONS {
        let result = call(&client, operation).await;
        assert_eq!(result, Err(RegistrarError::Failed(OutboundError::Status(401))), "{operation}");
    }
}

//! Responses of newer API releases, invalid calls, and secrets in `Debug`.

use client::types::{
    AccessAuthorize, AccessMode, DevLogin, InviteCreated, NewAccessToken, Org, OrgPage, Role, Scope, Session,
};
use client::{Client, Error, Method, Response, Secret};
use serde_json::{Value, json};

fn org(role: &str) -> Value {
    json!({
        "id": "org_01h45ytscbebyvny4gc8cr8ma2", "slug": "acme", "name": "Acme", "plan": "free", "personal": false,
        "role": role, "projectLimit": 3, "createdAt": "2026-01-01T00:00:00.000Z", "mascot": { "name": "Gnu" },
    })
}

#[test]
fn unknown_enum_values_and_fields_are_accepted() {
    let page = json!({ "items": [org("admin"), org("owner")], "nextCursor": null, "total": 2 });
    let page: OrgPage = serde_json::from_value(page).unwrap();
    let roles: Vec<&Role> = page.items.iter().map(|it: &Org| &it.role).collect();
    assert_eq!(roles, [&Role::Admin, &Role::Other("owner".into())]);
    assert_eq!(roles[1].to_string(), "owner");
    assert_eq!(serde_json::to_value(roles).unwrap(), json!(["admin", "owner"]));
    assert_eq!((AccessMode::from("org"), AccessMode::KNOWN), (AccessMode::Org, &["public", "org", "password"][..]));
}

#[test]
fn missing_field_or_wrong_type_is_rejected() {
    let without = |name: &str| {
        let mut org = org("admin");
        org.as_object_mut().unwrap().remove(name);
        org
    };
    assert!(serde_json::from_value::<Org>(without("mascot")).is_ok());
    assert!(serde_json::from_value::<Org>(without("slug")).is_err());
    assert!(serde_json::from_value::<Org>(json!({ "slug": 1 })).is_err());
}

#[test]
fn optional_fields_are_omitted() {
    let token = NewAccessToken { name: "ci".into(), scopes: vec![Scope::Deploy], expires_at: None, restrict: None };
    assert_eq!(serde_json::to_value(token).unwrap(), json!({ "name": "ci", "scopes": ["deploy"] }));
}

#[test]
fn debug_hides_credentials() {
    let session = json!({ "token": "svc_ses_hush", "expiresAt": "", "userId": "", "subject": "ada" });
    let session: Session = serde_json::from_value(session).unwrap();
    assert!(!format!("{session:?}").contains("hush"));
    let client = Client::new("http://127.0.0.1:9", "test").unwrap().with_credential(Secret::new("svc_pat_hush"));
    let login = DevLogin { subject: "hush".into(), email: None, name: None };
    let calls = format!("{client:?} {:?} {:?}", client.invites_preview("svc_inv_hush"), client.auth_dev_login(&login));
    assert!(!calls.contains("hush") && calls.contains("operation: \"auth.dev_login\""), "{calls}");
    assert!(!format!("{:?}", client.call::<Value>(Method::GET, &["v1", "hush"])).contains("hush"));
}

#[test]
fn debug_of_a_response_hides_its_json() {
    let json = json!({ "redirect": "https://site.example/?code=hush" });
    let value: AccessAuthorize = serde_json::from_value(json.clone()).unwrap();
    let response = Response { value, json };
    assert!(!format!("{response:?}").contains("hush"));
    assert!(response.redirect.reveal().contains("hush"));
    let json = json!({
        "id": "inv_01h45ytscbebyvny4gc8cr8ma2", "email": "bob@example.org", "role": "viewer", "state": "pending",
        "invitedBy": "usr_01h45ytscbebyvny4gc8cr8ma2", "createdAt": "", "expiresAt": "", "sentAt": null,
        "acceptUrl": "https://dashboard.example/invites/hush",
    });
    let value: InviteCreated = serde_json::from_value(json.clone()).unwrap();
    let shown = format!("{:?}", Response { value, json });
    assert!(shown.contains("bob@example.org") && !shown.contains("hush"), "{shown}");
}

#[tokio::test]
async fn invalid_address_or_name_fails_without_a_request() {
    for address in ["127.0.0.1:8080", "ftp://a.org", "http://u@a.org", "http://a.org?b", "http://a.org#c", ""] {
        assert!(matches!(Client::new(address, "test"), Err(Error::InvalidArgument(_))), "{address}");
    }
    assert_eq!(Client::new("http://a.org/api/", "test").unwrap().base().path(), "/api");
    let client = Client::new("http://127.0.0.1:9", "test").unwrap();
    for name in ["", ".", ".."] {
        let called = client.call::<Value>(Method::GET, &["v1", "orgs", name]).send().await;
        assert!(matches!(called, Err(Error::InvalidArgument(_))), "{name:?}");
    }
    let called = client.call::<Value>(Method::GET, &["healthz"]).send().await;
    assert!(matches!(called, Err(Error::Unreachable(_))), "{called:?}");
}

#[test]
fn is_loopback_matches_only_local_addresses() {
    let loopback = |address| Client::new(address, "test").unwrap().is_loopback();
    for address in
        ["http://127.0.0.1:8080", "http://127.1.2.3", "http://[::1]", "http://localhost", "http://a.localhost"]
    {
        assert!(loopback(address), "{address}");
    }
    for address in ["http://127.0.0.1.nip.io", "http://localhost.example.org", "http://10.0.0.1", "http://[::2]"] {
        assert!(!loopback(address), "{address}");
    }
}

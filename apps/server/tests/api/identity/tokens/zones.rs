//! Tokens restricted to zones.

use serde_json::{Value, json};

use super::{create_token, names, refusal};
use crate::support::{App, Caller};

const SCOPES: [&str; 4] = ["account:read", "org:write", "project:write", "dns:write"];

/// Ada with the zones `a.example` and `b.example` in the organization `acme`, and a token with this restriction.
async fn setup(restrict: Value) -> (App, Caller, Caller, Value) {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs", json!({ "slug": "acme" })).await.expect(201);
    ada.post("/v1/orgs/acme/projects", json!({ "name": "site" })).await.expect(201);
    for zone in ["a.example", "b.example"] {
        ada.post("/v1/orgs/acme/dns/zones", json!({ "name": zone })).await.expect(200);
    }
    let (token, created) =
        create_token(&app, &ada, json!({ "name": "dns", "scopes": SCOPES, "restrict": restrict })).await;
    (app, ada, token, created)
}

fn at(rest: &str) -> String {
    format!("/v1/orgs/acme/dns/zones{rest}")
}

#[tokio::test(flavor = "multi_thread")]
async fn token_restricted_to_a_zone_accesses_only_that_zone() {
    let restrict = json!({ "org": "acme", "zones": ["A.example.", "a.example"] });
    let (app, ada, token, created) = setup(restrict).await;
    assert_eq!(created["restrict"], json!({ "org": "acme", "projects": null, "zones": ["a.example"] }));
    assert_eq!(token.get("/v1/me/tokens/current").await.expect(200)["restrict"], created["restrict"]);

    assert_eq!(names(&token.get(&at("")).await, "name"), ["a.example"]);
    assert_eq!(token.get(&at("/a.example")).await.expect(200)["name"], "a.example");
    let records = json!({ "records": ["192.0.2.1"] });
    token.put(&at("/a.example/rrsets/www/A"), records.clone()).await.expect(200);
    token.delete(&at("/a.example/rrsets/www/A")).await.expect(204);
    token.get(&at("/a.example/zonefile")).await.expect(200);
    token.post(&at("/a.example/dnssec"), json!({ "enabled": true })).await.expect(200);

    // An existing zone, a missing zone and an invalid name are rejected with the same error.
    let mut refusals = Vec::new();
    for zone in ["b.example", "none.example", "-"] {
        refusals.push(refusal(&token.get(&at(&format!("/{zone}"))).await, 403, "forbidden"));
        let put = token.put(&at(&format!("/{zone}/rrsets/www/A")), records.clone()).await;
        refusals.push(refusal(&put, 403, "forbidden"));
    }
    assert!(refusals.iter().all(|refusal| refusal == &refusals[0]), "{refusals:?}");

    // The token has no access to other resources of the organization.
    token.post(&at(""), json!({ "name": "c.example" })).await.expect_error(403, "forbidden");
    token.get("/v1/orgs/acme/members").await.expect_error(403, "forbidden");
    token.get("/v1/orgs/acme/projects/site").await.expect_error(403, "forbidden");
    let projects = "/v1/orgs/acme/projects";
    let outsider = app.sign_in("eve").await.get(projects).await;
    assert_eq!(refusal(&token.get(projects).await, 403, "forbidden"), refusal(&outsider, 403, "forbidden"));
    token.get("/v1/orgs/ada/dns/zones").await.expect_error(403, "forbidden");

    // A new zone with the same name is another zone.
    token.delete(&at("/a.example")).await.expect(204);
    ada.post(&at(""), json!({ "name": "a.example" })).await.expect(200);
    token.get(&at("/a.example")).await.expect_error(403, "forbidden");
    assert_eq!(names(&token.get(&at("")).await, "name"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn token_can_be_restricted_to_projects_and_zones() {
    let restrict = json!({ "org": "acme", "projects": ["site"], "zones": ["b.example"] });
    let (_app, _ada, token, created) = setup(restrict.clone()).await;
    assert_eq!(created["restrict"], restrict);
    assert_eq!(names(&token.get("/v1/orgs/acme/projects").await, "name"), ["site"]);
    assert_eq!(names(&token.get(&at("")).await, "name"), ["b.example"]);
    token.get("/v1/orgs/acme/projects/site").await.expect(200);
    token.get(&at("/b.example")).await.expect(200);
    token.get(&at("/a.example")).await.expect_error(403, "forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_restricted_to_projects_accesses_no_zones() {
    let (app, _ada, token, _) = setup(json!({ "org": "acme", "projects": ["site"] })).await;
    let outsider = app.sign_in("eve").await.get(&at("")).await;
    assert_eq!(refusal(&token.get(&at("")).await, 403, "forbidden"), refusal(&outsider, 403, "forbidden"));
    token.get(&at("/a.example")).await.expect_error(403, "forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_restricted_to_projects_claims_no_hostname_in_a_zone_without_access_to_it() {
    let (app, ada, token, _) = setup(json!({ "org": "acme", "projects": ["site"] })).await;
    let hostnames = "/v1/orgs/acme/projects/site/hostnames";
    let claim = async |caller: &Caller, name: &str| caller.post(hostnames, json!({ "name": name })).await;
    let managed = async || {
        let zone = ada.get(&at("/a.example")).await.expect(200).clone();
        let rrsets = zone["rrsets"].as_array().unwrap().iter().filter(|rrset| rrset["managed_by"] == "project");
        rrsets.map(|rrset| rrset["name"].clone()).collect::<Vec<_>>()
    };

    let refused = claim(&token, "login.a.example").await;
    let message = refused.expect_error(403, "forbidden")["message"].as_str().unwrap();
    assert!(message.contains("no access to the organization's zone"), "{message}");
    assert_eq!(managed().await, [""; 0]);
    assert_eq!(claim(&token, "www.example.org").await.expect(200)["state"], "pending_dns");

    let restrict = json!({ "org": "acme", "projects": ["site"], "zones": ["a.example"] });
    let body = json!({ "name": "both", "scopes": SCOPES, "restrict": restrict });
    let (both, _) = create_token(&app, &ada, body).await;
    claim(&both, "login.b.example").await.expect_error(403, "forbidden");
    assert_eq!(claim(&both, "login.a.example").await.expect(200)["state"], "active");
    assert_eq!(managed().await, ["login.a.example"]);

    // The project already has the hostname, so the request changes nothing.
    assert_eq!(claim(&token, "login.a.example").await.expect(200)["state"], "active");
    // The removal of a hostname also removes its managed records, even without access to the zone.
    token.delete(&format!("{hostnames}/login.a.example")).await.expect(204);
    assert_eq!(managed().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn token_restricted_to_zones_works_with_powerdns_tools() {
    let restrict = json!({ "org": "acme", "zones": ["a.example"] });
    let (app, _ada, _, created) = setup(restrict).await;
    let key = created["token"].as_str().unwrap();
    let zones = format!("{}/api/v1/servers/localhost/zones", app.base);
    let get = async |url: String| {
        let response = crate::support::client().get(url).header("X-API-Key", key).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    for url in [zones.clone(), format!("{zones}?zone=a.example.")] {
        let (status, list) = get(url.clone()).await;
        let listed: Vec<&str> = list.as_array().unwrap().iter().map(|zone| zone["name"].as_str().unwrap()).collect();
        assert_eq!((status, listed), (200, vec!["a.example."]), "{url}");
    }
    assert_eq!(get(format!("{zones}?zone=b.example.")).await, (200, json!([])));
    assert_eq!(get(format!("{zones}/a.example.")).await.0, 200);
    assert_eq!(get(format!("{zones}/b.example.")).await.0, 404);
    let create = crate::support::client().post(&zones).header("X-API-Key", key).body(r#"{"name":"c.example."}"#);
    let refused = create.send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 422);
    let message = refused.json::<Value>().await.unwrap()["error"].as_str().unwrap().to_owned();
    assert!(message.contains("restricted to projects or zones"), "{message}");
}

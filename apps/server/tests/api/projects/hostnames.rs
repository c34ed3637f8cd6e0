//! Hostnames, verified against a DNS server.

use futures_util::future::join_all;
use sandbox::{DnsFault, DnsServer, RecordType};
use serde_json::{Value, json};

use crate::support::{App, Caller, eventually, site};

const HOSTNAMES: &str = "/v1/orgs/ada/projects/site/hostnames";

/// Returns a deployment, Ada with a deployed project `site`, and the DNS server that the platform queries.
async fn setup() -> (App, Caller, DnsServer) {
    let dns = DnsServer::start().await;
    let address = dns.address();
    let app = App::with(|config| config.dns_resolver = Some(address)).await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    ada.upload("/v1/orgs/ada/projects/site/deployments", site("page")).await.expect(201);
    (app, ada, dns)
}

async fn claim(ada: &Caller, name: &str) -> Value {
    ada.post(HOSTNAMES, json!({ "name": name })).await.expect(200).clone()
}

async fn verify(ada: &Caller, name: &str) -> Value {
    ada.post(&format!("{HOSTNAMES}/{name}/verify"), json!({})).await.expect(200).clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_lists_its_verification_records_and_is_verified_by_txt() {
    let (app, ada, dns) = setup().await;
    let claimed = claim(&ada, "WWW.Müller.example.").await;
    assert_eq!(claimed["name"], "www.xn--mller-kva.example");
    assert_eq!((&claimed["kind"], &claimed["state"]), (&json!("custom"), &json!("pending_dns")));
    let value = format!("svc-verify={}", claimed["verificationToken"].as_str().unwrap());
    assert_eq!(
        claimed["verify"],
        json!([
            { "type": "TXT", "name": "_svc-verify.www.xn--mller-kva.example", "value": value },
            { "type": "CNAME", "name": "www.xn--mller-kva.example", "value": "fallback.localhost" },
        ])
    );
    assert_eq!(claim(&ada, "www.müller.example").await, claimed);
    assert_eq!(ada.get("/v1/orgs/ada/projects/site").await.expect(200)["hostnames"][1], claimed);
    for (from, to) in [("site", "shop"), ("shop", "site")] {
        let renamed = ada.patch(&format!("/v1/orgs/ada/projects/{from}"), json!({ "name": to })).await;
        assert_eq!(renamed.expect(200)["hostnames"][1], claimed);
    }

    let name = "www.xn--mller-kva.example";
    let nothing = verify(&ada, name).await;
    assert_eq!(nothing["state"], "pending_dns");
    let error = nothing["lastError"].as_str().unwrap();
    assert!(error.contains("_svc-verify.www.xn--mller-kva.example") && error.contains("does not exist"), "{error}");
    dns.set(&format!("_svc-verify.{name}"), RecordType::TXT, &["svc-verify=another-token"]);
    let wrong = verify(&ada, name).await;
    let error = wrong["lastError"].as_str().unwrap();
    assert!(error.contains("found svc-verify=another-token"), "{error}");
    assert_eq!(wrong["checks"][0]["observed"], json!(["svc-verify=another-token"]));
    assert_eq!(wrong["checks"][0]["expected"], json!(value));
    // Postgres cannot store U+0000.
    dns.set_strings(&format!("_svc-verify.{name}"), &[b"a\0b"]);
    assert_eq!(verify(&ada, name).await["checks"][0]["observed"], json!(["a\u{fffd}b"]));

    dns.set(&format!("_svc-verify.{name}"), RecordType::TXT, &["other", &value]);
    let verified = verify(&ada, name).await;
    assert_eq!((&verified["state"], &verified["lastError"]), (&json!("active"), &Value::Null));
    assert_eq!((&verified["verify"], &verified["checks"]), (&json!([]), &json!([])));
    let listed = ada.get(HOSTNAMES).await.expect(200).clone();
    let names: Vec<&str> = listed["items"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!((names, &listed["nextCursor"]), (vec!["site-ada.localhost", name], &Value::Null));
    let served = app.db_rows("SELECT desired -> 'hostnames' AS names FROM convergence.parts WHERE part = 'site'").await;
    assert_eq!(served, [json!({ "names": ["site-ada.localhost", name] })]);

    ada.delete(&format!("{HOSTNAMES}/{name}")).await.expect(204);
    ada.delete(&format!("{HOSTNAMES}/{name}")).await.expect_error(404, "not_found");
    ada.delete(&format!("{HOSTNAMES}/site-ada.localhost")).await.expect_error(400, "bad_request");
    let events = app.db_audit("ada").await.into_iter().filter(|event| event.starts_with("hostname."));
    assert_eq!(events.collect::<Vec<_>>(), ["hostname.add", "hostname.verify", "hostname.delete"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cname_verifies_a_hostname_and_dns_errors_are_reported() {
    let (_app, ada, dns) = setup().await;
    claim(&ada, "shop.example.org").await;
    for (fault, text) in [
        (DnsFault::ServerFailure, "failed"),
        (DnsFault::Refused, "refused"),
        (DnsFault::Silent, "did not respond in time"),
        (DnsFault::Garbage, "invalid response"),
    ] {
        dns.inject(Some(fault));
        let error = verify(&ada, "shop.example.org").await["lastError"].as_str().unwrap().to_owned();
        assert!(error.contains(text), "{text}: {error}");
    }
    dns.inject(None);
    dns.set("shop.example.org", RecordType::CNAME, &["elsewhere.example.net."]);
    let error = verify(&ada, "shop.example.org").await["lastError"].as_str().unwrap().to_owned();
    assert!(error.contains("found elsewhere.example.net"), "{error}");
    dns.set("shop.example.org", RecordType::CNAME, &["Fallback.Localhost."]);
    assert_eq!(verify(&ada, "shop.example.org").await["state"], "active");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_hostnames_are_rejected() {
    let (_app, ada, _dns) = setup().await;
    for name in [
        "",
        "*.example.org",
        "com",
        "co.uk",
        "127.0.0.1",
        "a.localhost",
        "example",
        "a b.org",
        "x.org:443",
        "http://x.org",
    ] {
        let response = ada.post(HOSTNAMES, json!({ "name": name })).await;
        assert_eq!(response.expect_error(400, "bad_request")["details"]["fields"][0]["path"], "name", "{name}");
    }
    let long = format!("{0}.{0}.{0}.{1}.example.org", "a".repeat(63), "b".repeat(38));
    let response = ada.post(HOSTNAMES, json!({ "name": long })).await;
    let field = &response.expect_error(400, "bad_request")["details"]["fields"][0];
    assert!(field["message"].as_str().unwrap().contains("at most 241 characters"), "{field}");
    let both = ada.post(HOSTNAMES, json!({ "name": "x.org:443", "x": 1 })).await;
    let fields = both.expect_error(400, "bad_request")["details"]["fields"].as_array().unwrap();
    assert_eq!(fields.iter().map(|field| &field["path"]).collect::<Vec<_>>(), ["name", "x"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_claims_of_a_hostname_succeed_for_one_project() {
    let (_app, ada, _dns) = setup().await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "other" })).await.expect(201);
    for round in 0..3 {
        let name = format!("www{round}.example.org");
        let responses = join_all((0..20).map(|n| {
            let path = format!("/v1/orgs/ada/projects/{}/hostnames", if n % 2 == 0 { "site" } else { "other" });
            let (ada, name) = (ada.clone(), name.clone());
            async move {
                let claim = async || ada.post(&path, json!({ "name": name })).await;
                // A claim that waits too long for its lookup gets 503.
                eventually("a response", async || Some(claim().await).filter(|it| it.status != 503)).await
            }
        }))
        .await;
        let taken = responses.iter().filter(|response| response.status == 409).count();
        responses
            .iter()
            .filter(|response| response.status != 200)
            .for_each(|it| drop(it.expect_error(409, "hostname_taken").clone()));
        assert_eq!(taken, 10, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostname_check_finishes_while_the_resolver_times_out() {
    let names = 800;
    let (app, ada, dns) = setup().await;
    dns.inject(Some(DnsFault::Silent));
    let claims = format!(
        "INSERT INTO projects.hostnames (name, project_id, kind, state, verification_token, created_at, next_check_at, claim_expires_at) \
         SELECT 'www' || n || '.example.org', p.id, 'custom', 'pending_dns', 'token' || n, now(), now() - interval '1 day', \
         now() + interval '7 days' FROM projects.projects p, generate_series(1, {names}) n"
    );
    app.db_execute(&claims).await.unwrap();
    // A server checks hostnames at startup and then every minute.
    let other = app.another().await;
    let explained = "SELECT count(*) AS n FROM projects.hostnames WHERE last_error LIKE '%did not respond in time%'";
    let done = async || app.db_rows(explained).await[0]["n"] == names;
    for _ in 0..1000 {
        if done().await {
            break;
        }
        // The checks do not block other requests.
        ada.get("/v1/me").await.expect(200);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(done().await);
    drop(other);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostname_that_fails_verification_is_notified_and_deactivated_after_a_week() {
    let (app, ada, dns) = setup().await;
    claim(&ada, "www.example.org").await;
    dns.set("www.example.org", RecordType::CNAME, &["fallback.localhost."]);
    assert_eq!(verify(&ada, "www.example.org").await["state"], "active");
    // A timeout does not count as a failed verification; a response without the record does.
    dns.set("www.example.org", RecordType::CNAME, &[]);
    dns.inject(Some(DnsFault::Silent));
    assert_eq!(verify(&ada, "www.example.org").await["lastError"], Value::Null);
    dns.inject(None);
    let lost = verify(&ada, "www.example.org").await;
    assert_eq!(lost["state"], "active");
    assert!(lost["lastError"].as_str().unwrap().contains("does not exist"), "{lost}");
    let notifications = ada.get("/v1/orgs/ada/notifications").await.expect(200)["items"].clone();
    assert_eq!(
        (&notifications[0]["kind"], &notifications[0]["project"]),
        (&json!("hostname.unproved"), &json!("site"))
    );
    app.clock.advance(8 * 24 * 3600);
    assert_eq!(verify(&ada, "www.example.org").await["state"], "pending_dns");
    let served = app.db_rows("SELECT desired -> 'hostnames' AS names FROM convergence.parts WHERE part = 'site'").await;
    assert_eq!(served, [json!({ "names": ["site-ada.localhost"] })]);
}

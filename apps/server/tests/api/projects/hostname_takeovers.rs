//! Takeovers of hostnames, over HTTP and against a DNS server.

use futures_util::future::join_all;
use sandbox::{DnsFault, DnsServer, RecordType};
use serde_json::{Value, json};

use crate::support::{ApiResponse, App, Caller, ManualNode, eventually, site, while_waiting};

const NAME: &str = "www.example.org";
const RECORD: &str = "_svc-verify.www.example.org";

/// Returns a deployment, and the DNS server that the platform queries.
async fn setup() -> (App, DnsServer) {
    let dns = DnsServer::start().await;
    let address = dns.address();
    (App::with(|config| config.dns_resolver = Some(address)).await, dns)
}

/// Signs a user in, who deploys the project `site`.
async fn owner_of_site(app: &App, subject: &str) -> Caller {
    let caller = app.sign_in(subject).await;
    caller.post(&format!("/v1/orgs/{subject}/projects"), json!({ "name": "site" })).await.expect(201);
    caller.upload(&format!("/v1/orgs/{subject}/projects/site/deployments"), site("page")).await.expect(201);
    caller
}

fn hostnames(org: &str) -> String {
    format!("/v1/orgs/{org}/projects/site/hostnames")
}

async fn add(caller: &Caller, org: &str) -> ApiResponse {
    caller.post(&hostnames(org), json!({ "name": NAME })).await
}

/// Asserts that the claim of a hostname is rejected. Returns the value of the TXT record in the error.
async fn refused(caller: &Caller, org: &str) -> String {
    let error = add(caller, org).await.expect_error(409, "hostname_taken").clone();
    let verify = &error["details"]["verify"];
    let value = verify["value"].as_str().unwrap().to_owned();
    assert!(value.starts_with("svc-verify="), "{value}");
    assert_eq!(*verify, json!({ "type": "TXT", "name": RECORD, "value": value }));
    value
}

/// Returns the served hostnames of the project in the organization's desired state.
async fn served(app: &App, org: &str) -> Value {
    let statement = format!(
        "SELECT c.desired -> 'hostnames' AS names FROM convergence.parts c \
         JOIN projects.projects p ON p.id = c.project_id JOIN orgs.orgs o ON o.id = p.org_id \
         WHERE c.part = 'site' AND o.slug = '{org}'"
    );
    app.db_rows(&statement).await[0]["names"].clone()
}

async fn newest_notification(caller: &Caller, org: &str) -> Value {
    caller.get(&format!("/v1/orgs/{org}/notifications")).await.expect(200)["items"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn published_txt_record_takes_a_served_hostname_over() {
    let (app, dns) = setup().await;
    let (ada, bob) = (owner_of_site(&app, "ada").await, owner_of_site(&app, "bob").await);
    add(&ada, "ada").await.expect(200);
    dns.set(NAME, RecordType::CNAME, &["fallback.localhost."]);
    let verified = ada.post(&format!("{}/{NAME}/verify", hostnames("ada")), json!({})).await;
    assert_eq!(verified.expect(200)["state"], "active");

    let value = refused(&bob, "bob").await;
    assert_eq!(refused(&bob, "bob").await, value);
    // A failed lookup proves nothing.
    dns.set(RECORD, RecordType::TXT, &["other", &value]);
    dns.inject(Some(DnsFault::ServerFailure));
    assert_eq!(refused(&bob, "bob").await, value);
    assert_eq!(served(&app, "ada").await, json!(["site-ada.localhost", NAME]));
    dns.inject(None);

    let taken = add(&bob, "bob").await.expect(200).clone();
    assert_eq!((&taken["state"], &taken["verify"], &taken["lastError"]), (&json!("active"), &json!([]), &Value::Null));
    assert_eq!(value, format!("svc-verify={}", taken["verificationToken"].as_str().unwrap()));
    assert_eq!(add(&bob, "bob").await.expect(200).clone(), taken);
    assert_eq!(served(&app, "bob").await, json!(["site-bob.localhost", NAME]));
    assert_eq!(served(&app, "ada").await, json!(["site-ada.localhost"]));
    let listed = ada.get(&hostnames("ada")).await.expect(200)["items"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 1);

    // Each organization is notified. Its log shows the change, but not the other organization's user.
    for (caller, org, title) in
        [(&ada, "ada", "Another project took over www.example.org"), (&bob, "bob", "site took over www.example.org")]
    {
        let shown = newest_notification(caller, org).await;
        let kind = (&shown["kind"], &shown["project"], &shown["title"]);
        assert_eq!(kind, (&json!("hostname.taken_over"), &json!("site"), &json!(title)));
        assert!(shown["message"].as_str().unwrap().contains(NAME));
    }
    let events = ada.get("/v1/orgs/ada/audit?event=hostname.taken_over").await.expect(200)["items"].clone();
    assert_eq!((&events[0]["data"], &events[0]["actor"]), (&json!({ "hostname": NAME }), &Value::Null));
    let events = bob.get("/v1/orgs/bob/audit?event=hostname.add").await.expect(200)["items"].clone();
    assert_eq!(events[0]["data"], json!({ "hostname": NAME, "proof": "txt", "takenOver": true }));
    assert_eq!(events[0]["actor"], bob.user_id);

    // The new holder's record is published, so the former holder cannot take the hostname back.
    let of_ada = refused(&ada, "ada").await;
    dns.set(RECORD, RecordType::TXT, &[&value, &of_ada]);
    let message = add(&ada, "ada").await.expect_error(409, "hostname_taken")["message"].clone();
    assert!(message.as_str().unwrap().contains("next to yours"), "{message}");
    dns.set(RECORD, RecordType::TXT, &[&of_ada]);
    assert_eq!(add(&ada, "ada").await.expect(200)["state"], "active");
    assert_eq!(served(&app, "bob").await, json!(["site-bob.localhost"]));
}

/// Returns a deployment with a node, the DNS server, and Bob, who can take over the served hostname of Ada.
async fn setup_takeover() -> (App, DnsServer, Caller) {
    let (app, dns) = setup().await;
    ManualNode::new(&app).await;
    let (ada, bob) = (owner_of_site(&app, "ada").await, owner_of_site(&app, "bob").await);
    add(&ada, "ada").await.expect(200);
    dns.set(NAME, RecordType::CNAME, &["fallback.localhost."]);
    let verified = ada.post(&format!("{}/{NAME}/verify", hostnames("ada")), json!({})).await;
    assert_eq!(verified.expect(200)["state"], "active");
    let value = refused(&bob, "bob").await;
    dns.set(RECORD, RecordType::TXT, &[&value]);
    (app, dns, bob)
}

/// Executes the takeover, which waits for locks until `others` release them.
async fn take_over(app: &App, bob: &Caller, others: impl Future<Output = ()>) {
    let taken = while_waiting(async || add(bob, "bob").await, others).await;
    assert_eq!(taken.expect(200)["state"], "active");
    assert_eq!(served(app, "bob").await, json!(["site-bob.localhost", NAME]));
    assert_eq!(served(app, "ada").await, json!(["site-ada.localhost"]));
}

/// Executes the takeover. Asserts that it locks the placement of this organization's project before the node.
async fn assert_placement_locked_before_node(app: &App, bob: &Caller, org: &str) {
    let placement = format!(
        "SELECT FROM convergence.placements WHERE project_id = (SELECT p.id FROM projects.projects p \
         JOIN orgs.orgs o ON o.id = p.org_id WHERE o.slug = '{org}') FOR UPDATE"
    );
    let placement = app.hold(&placement).await;
    let others = async {
        // A part of the statement that locks all placements.
        let lock = r#""placements"."project_id" = ANY("#;
        assert!(!app.waiting_transaction_locks_node(lock).await, "the node is locked before the placement");
        placement.commit("").await;
    };
    take_over(app, bob, others).await;
}

/// Inserts the certificate of the hostname for the project of this organization.
async fn insert_certificate(app: &App, org: &str) {
    let insert = format!(
        "INSERT INTO certificates.names (name, org_id, project_id, wanted, state, due_at, created_at) \
         SELECT '{NAME}', p.org_id, p.id, true, 'active', '2100-01-01', p.created_at \
         FROM projects.projects p JOIN orgs.orgs o ON o.id = p.org_id WHERE o.slug = '{org}'"
    );
    app.db_execute(&insert).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn takeover_locks_both_placements_before_their_node() {
    let (app, _dns, bob) = setup_takeover().await;
    assert_placement_locked_before_node(&app, &bob, "bob").await;
}

/// A project that has removed a hostname can still have its certificate.
#[tokio::test(flavor = "multi_thread")]
async fn takeover_locks_the_placement_with_the_certificate_before_the_node() {
    let (app, _dns, bob) = setup_takeover().await;
    owner_of_site(&app, "cyd").await;
    insert_certificate(&app, "cyd").await;
    assert_placement_locked_before_node(&app, &bob, "cyd").await;
}

/// The job that issues a certificate locks the name before the placement of its project.
#[tokio::test(flavor = "multi_thread")]
async fn takeover_locks_the_certificate_before_the_placements() {
    let (app, _dns, bob) = setup_takeover().await;
    insert_certificate(&app, "ada").await;
    let certificate = app.hold("SELECT FROM certificates.names FOR UPDATE").await;
    let others = async {
        app.wait_for_lock(r#""names""#).await;
        certificate.commit("SELECT FROM convergence.placements FOR UPDATE NOWAIT").await;
    };
    take_over(&app, &bob, others).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn record_of_one_project_is_useless_to_another() {
    let (app, dns) = setup().await;
    let (ada, bob) = (owner_of_site(&app, "ada").await, owner_of_site(&app, "bob").await);
    let cyd = owner_of_site(&app, "cyd").await;
    add(&ada, "ada").await.expect(200);
    let (of_bob, of_cyd) = (refused(&bob, "bob").await, refused(&cyd, "cyd").await);
    assert_ne!(of_bob, of_cyd);
    dns.set(RECORD, RecordType::TXT, &[&of_bob]);
    assert_eq!(refused(&cyd, "cyd").await, of_cyd);

    // The stored response of an idempotency key is final, so the next attempt needs a new key.
    let claim = async |key: &str| bob.post_with_key(key, &hostnames("bob"), json!({ "name": NAME })).await;
    dns.set(RECORD, RecordType::TXT, &[&of_cyd]);
    claim("first").await.expect_error(409, "hostname_taken");
    dns.set(RECORD, RecordType::TXT, &[&of_bob]);
    claim("first").await.expect_error(409, "hostname_taken");
    assert_eq!(claim("second").await.expect(200)["state"], "active");
    assert_eq!(claim("second").await.expect(200)["state"], "active");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_takeovers_have_one_winner() {
    let (app, dns) = setup().await;
    let callers =
        [owner_of_site(&app, "ada").await, owner_of_site(&app, "bob").await, owner_of_site(&app, "cyd").await];
    let [ada, bob, cyd] = &callers;
    add(ada, "ada").await.expect(200);
    let values = [refused(bob, "bob").await, refused(cyd, "cyd").await];
    dns.set(RECORD, RecordType::TXT, &[&values[0], &values[1]]);
    let another = app.another().await;
    let attempts = (0..8).map(|n| {
        let (caller, org) = if n % 2 == 0 { (bob, "bob") } else { (cyd, "cyd") };
        let caller = if n < 4 { caller.clone() } else { another.connect(caller) };
        async move {
            // A claim that waits too long for its lookup gets 503.
            let claim = async || Some(add(&caller, org).await).filter(|response| response.status != 503);
            (org, eventually("a response", claim).await)
        }
    });
    let responses = join_all(attempts).await;
    let winner = responses.iter().find(|(_, response)| response.status == 200).unwrap().0;
    for (org, response) in &responses {
        if *org == winner {
            assert_eq!(response.expect(200)["state"], "active");
        } else {
            response.expect_error(409, "hostname_taken");
        }
    }
    let takeovers =
        "SELECT event FROM store.audit WHERE event = 'hostname.taken_over' OR data ->> 'takenOver' = 'true'";
    assert_eq!(app.db_rows(takeovers).await.len(), 2);
    assert_eq!(served(&app, winner).await, json!([format!("site-{winner}.localhost"), NAME]));
    assert_eq!(served(&app, "ada").await, json!(["site-ada.localhost"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_hostnames_of_a_project_are_limited() {
    let (app, _dns) = setup().await;
    let ada = owner_of_site(&app, "ada").await;
    let claim = |n: usize| {
        let ada = &ada;
        async move { ada.post(&hostnames("ada"), json!({ "name": format!("p{n}.example.org") })).await }
    };
    let responses = join_all((0..24).map(claim)).await;
    let (claimed, refused): (Vec<_>, Vec<_>) = responses.iter().partition(|response| response.status == 200);
    assert_eq!((claimed.len(), refused.len()), (20, 4));
    for response in refused {
        let details = response.expect_error(409, "hostname_limit")["details"].clone();
        assert_eq!(details, json!({ "limit": 20, "count": 20, "plan": "free", "of": "pending" }));
    }
}

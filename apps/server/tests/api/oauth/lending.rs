//! Ended grants reach the model-lending service (providers.md section 4): signed, retried and never lost.

use std::sync::{Arc, Mutex};

use actix_web::http::header::RETRY_AFTER;
use actix_web::{App as Web, HttpRequest, HttpResponse, HttpServer, web};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::{Value, json};
use server::config::LendingConfig;
use webhooks::SigningKey;

use super::kit::{Tokens, clients, expect_oauth_error, expect_rejected, operator, public, register, register_at};
use crate::process::Process;
use crate::support::{App, eventually};

/// The secret, whose key is the base64 after `whsec_`.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A request that the service received, with a valid signature.
#[derive(Debug, Clone, PartialEq)]
struct Received {
    id: String,
    sid: String,
}

/// A model-lending service. It verifies signatures according to the Standard Webhooks specification.
#[derive(Clone)]
struct LendingService {
    url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The statuses of the next responses. Later responses are 204.
    statuses: Vec<u16>,
    received: Vec<Received>,
    /// Requests with another path, type, body or signature.
    malformed: Vec<String>,
}

impl LendingService {
    async fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let of_handler = web::Data::from(state.clone());
        let server =
            HttpServer::new(move || Web::new().app_data(of_handler.clone()).default_service(web::to(Self::receive)));
        let server = server.workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
        // A base URL with a path.
        let url = format!("http://{}/lending", server.addrs()[0]);
        tokio::spawn(server.run());
        Self { url, state }
    }

    async fn receive(request: HttpRequest, body: web::Bytes, state: web::Data<Mutex<State>>) -> HttpResponse {
        let mut state = state.lock().unwrap();
        match read(&request, &body) {
            Some(received) => state.received.push(received),
            None => state.malformed.push(format!("{request:?} {body:?}")),
        }
        let status = if state.statuses.is_empty() { 204 } else { state.statuses.remove(0) };
        // After such a wait, the client does not repeat the request itself.
        HttpResponse::build(status.try_into().unwrap()).insert_header((RETRY_AFTER, 60)).finish()
    }

    fn answer_with(&self, statuses: &[u16]) {
        self.state.lock().unwrap().statuses = statuses.to_vec();
    }

    fn received(&self) -> Vec<Received> {
        let state = self.state.lock().unwrap();
        assert!(state.malformed.is_empty(), "{:?}", state.malformed);
        state.received.clone()
    }

    async fn wait_for(&self, count: usize) -> Vec<Received> {
        eventually("the lending service is notified", async || {
            Some(self.received()).filter(|received| received.len() >= count)
        })
        .await
    }

    fn config(&self) -> LendingConfig {
        LendingConfig { url: self.url.parse().unwrap(), key: SigningKey::parse(SECRET).unwrap() }
    }
}

/// Returns the message of a valid request.
fn read(request: &HttpRequest, body: &[u8]) -> Option<Received> {
    let header = |name: &str| request.headers().get(name)?.to_str().ok();
    let (id, timestamp) = (header("webhook-id")?, header("webhook-timestamp")?);
    let age = kernel::ClockRng::system().now().unix_seconds() - timestamp.parse::<i64>().ok()?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(SECRET.strip_prefix("whsec_")?).ok()?);
    let signed = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
    let signature = STANDARD.decode(header("webhook-signature")?.strip_prefix("v1,")?).ok()?;
    hmac::verify(&key, &signed, &signature).ok()?;
    let body: Value = serde_json::from_slice(body).ok()?;
    let sid = body["sid"].as_str()?.to_owned();
    let is_expected = request.method() == "POST"
        && request.path() == "/lending/revocations"
        && header("content-type") == Some("application/json")
        && body.as_object()?.len() == 1
        && age.abs() <= 300;
    is_expected.then(|| Received { id: id.to_owned(), sid })
}

/// Makes the next attempt of each message due.
async fn retry_now(app: &App) {
    app.db_execute("UPDATE store.outbox SET next_attempt_at = created_at, last_error = NULL").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_end_of_a_grant_is_reported_once() {
    let lending = LendingService::start().await;
    let app = App::with(|config| config.lending = Some(lending.config())).await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let mut expected = Vec::new();
    for end in ["session", "revoke", "refresh reuse", "code reuse", "removal"] {
        let code = client.code(&ada).await;
        let tokens = Tokens::of(&client.exchange(&code).await);
        match end {
            "session" => {
                ada.delete(&format!("/v1/oauth/grants/{}", tokens.sid())).await.expect(204);
            }
            "revoke" => {
                client.revoke(&tokens.access).await.expect(200);
            }
            "refresh reuse" => {
                Tokens::of(&client.refresh(&tokens.refresh).await);
                expect_oauth_error(&client.refresh(&tokens.refresh).await, 400, "invalid_grant");
            }
            "code reuse" => expect_oauth_error(&client.exchange(&code).await, 400, "invalid_grant"),
            _ => {
                clients(&app).remove(&operator(), client.id()).await.unwrap();
            }
        }
        expected.push(tokens.sid());
        let received = lending.wait_for(expected.len()).await;
        let sids: Vec<_> = received.iter().map(|message| message.sid.clone()).collect();
        assert_eq!(sids, expected, "{end}");
    }
    eventually("the outbox is empty", async || {
        app.db_rows("SELECT id FROM store.outbox").await.is_empty().then_some(())
    })
    .await;
    assert_eq!(lending.received().len(), expected.len());
}

/// The end of a grant does not wait for the service. Every response except 2xx is followed by a retry with the same id.
#[tokio::test(flavor = "multi_thread")]
async fn report_is_retried_until_it_is_accepted() {
    let lending = LendingService::start().await;
    let app = App::with(|config| config.lending = Some(lending.config())).await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let tokens = client.sign_in(&ada).await;
    let failures = [500, 503, 404, 400, 401, 410, 301, 429];
    lending.answer_with(&failures);
    client.revoke(&tokens.refresh).await.expect(200);
    expect_rejected(&app, &tokens.access).await;
    for attempt in 1..=failures.len() + 1 {
        let received = lending.wait_for(attempt).await;
        assert!(received.iter().all(|message| *message == received[0]), "{received:?}");
        // The attempt is counted at its start, and has an error at its end.
        let failed = format!("SELECT id FROM store.outbox WHERE attempts >= {attempt} AND last_error IS NOT NULL");
        if attempt <= failures.len() {
            eventually("the failure is recorded", async || (!app.db_rows(&failed).await.is_empty()).then_some(()))
                .await;
            let rows = app.db_rows("SELECT dead_lettered_at FROM store.outbox").await;
            assert_eq!(rows, [json!({ "dead_lettered_at": null })]);
            retry_now(&app).await;
            app.db_execute("NOTIFY outbox, 'oauth.revocation'").await.unwrap();
        }
    }
    eventually("the message is delivered", async || {
        app.db_rows("SELECT id FROM store.outbox").await.is_empty().then_some(())
    })
    .await;
    let received = lending.received();
    assert_eq!((received.len(), &received[0].sid), (failures.len() + 1, &tokens.sid()));
}

#[tokio::test(flavor = "multi_thread")]
async fn server_without_the_setting_deletes_only_old_messages() {
    let lending = LendingService::start().await;
    let without = App::start().await;
    let ada = without.sign_in("ada").await;
    let client = register(&without, public()).await;
    let mut ended = Vec::new();
    for _ in 0..2 {
        let tokens = client.sign_in(&ada).await;
        client.revoke(&tokens.refresh).await.expect(200);
        ended.push(tokens.sid());
    }
    let over =
        format!("UPDATE store.outbox SET next_attempt_at = created_at - interval '3 days' WHERE key = '{}'", ended[0]);
    without.db_execute(&over).await.unwrap();
    // The job also runs at the start of a server.
    let _another = without.another().await;
    eventually("the old message is deleted", async || {
        let rows = without.db_rows("SELECT key, attempts FROM store.outbox").await;
        (rows == [json!({ "key": ended[1], "attempts": 0 })]).then_some(())
    })
    .await;
    let _with = without.another_with(|config| config.lending = Some(lending.config())).await;
    assert_eq!(lending.wait_for(1).await[0].sid, ended[1]);
    eventually("the outbox is empty", async || {
        without.db_rows("SELECT id FROM store.outbox").await.is_empty().then_some(())
    })
    .await;
    assert_eq!(lending.received().len(), 1);
}

/// The message is committed together with the end of the grant. So if the server is killed before the delivery, it
/// sends the message later.
#[tokio::test(flavor = "multi_thread")]
async fn crash_loses_no_report() {
    let lending = LendingService::start().await;
    lending.answer_with(&[500; 3]);
    let settings = [
        ("SVC_OAUTH_ISSUER", "http://127.0.0.1".to_owned()),
        ("SVC_LENDING_URL", lending.url.clone()),
        ("SVC_LENDING_SECRET", SECRET.to_owned()),
        ("SVC_LOG", "trace".to_owned()),
    ];
    let mut process = Process::with(&settings).await;
    let (client, ada) = register_at(&process, public()).await;
    let tokens = client.sign_in(&ada).await;
    client.revoke(&tokens.refresh).await.expect(200);
    let first = lending.wait_for(1).await[0].clone();
    let failed = "responded with status 500";
    eventually("the failure is logged", async || process.log().contains(failed).then_some(())).await;
    assert_no_secret(&process.log());
    process.kill_and_restart().await;
    lending.answer_with(&[]);
    let sent = lending.received().len();
    // End the lease of the killed process instead of waiting for it.
    process.database.run("UPDATE store.outbox SET next_attempt_at = created_at").await;
    let received = lending.wait_for(sent + 1).await;
    assert!(received.iter().all(|message| *message == first), "{received:?}");
    let pending = async || process.database.rows("SELECT id FROM store.outbox").await.len();
    eventually("the outbox is empty", async || (pending().await == 0).then_some(())).await;
}

/// Asserts that a log at the most detailed level contains no form of the secret.
fn assert_no_secret(log: &str) {
    assert!(log.lines().count() > 50, "{log}");
    let line = log.lines().find(|line| line.contains(SECRET.strip_prefix("whsec_").unwrap()));
    assert!(line.is_none(), "the secret is in the log: {line:?}");
}

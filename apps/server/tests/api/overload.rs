//! Load shedding: the refusal of requests above the concurrency limit.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::chaos::{NetworkFault, Proxy};
use futures_util::future::join_all;
use kernel::Secret;
use reqwest::Method;
use sandbox::{PaymentsFault, PaymentsServer};
use serde_json::json;
use testkit::TestDatabase;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::billing::use_provider;
use crate::support::{ApiResponse, App, Caller, ManualNode, eventually, site, use_short_waits};

/// The number of concurrent clients during an overload.
const CLIENTS: usize = 40;

fn is_refused(response: &ApiResponse) -> bool {
    response.header("x-request-id") == "refused"
}

pub async fn connect(app: &App) -> TcpStream {
    TcpStream::connect(app.base.strip_prefix("http://").unwrap()).await.unwrap()
}

/// Returns the head of a POST with a JSON body of this length.
fn head(caller: &Caller, path: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n",
        caller.token.as_deref().unwrap()
    )
}

/// Reads a response, in lowercase. Returns `None` if the server closes the connection first.
pub async fn read_response(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return Some(text);
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// An app with one permit.
struct Rig {
    app: App,
    ada: Caller,
    payments: PaymentsServer,
}

impl Rig {
    async fn start() -> Self {
        let payments = PaymentsServer::start(None).await;
        let app = App::with(|config| {
            config.gateway.max_concurrent_requests = 1;
            use_provider(config, &payments);
        });
        let app = app.await;
        let ada = app.sign_in("ada").await;
        // Only later requests are served from memory.
        ada.get("/v1/config").await.expect(200);
        ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
        Self { app, ada, payments }
    }

    /// Sends a request that holds the permit while it waits for the payments provider, up to ten seconds.
    async fn occupy(&self) -> TcpStream {
        // Otherwise, a call of an earlier request may still wait.
        self.payments.inject(None);
        eventually("no call waits", async || (self.payments.hanging() == 0).then_some(())).await;
        self.payments.inject(Some(PaymentsFault::Hang));
        let body = json!({ "returnTo": "http://localhost:3000/" }).to_string();
        let request = head(&self.ada, "/v1/orgs/ada/billing/checkout", body.len()) + &body;
        eventually("a request holds the permit", async || {
            let mut stream = connect(&self.app).await;
            stream.write_all(request.as_bytes()).await.unwrap();
            let calls = async || (self.payments.hanging() > 0).then_some(());
            tokio::select! {
                () = eventually("the request calls the provider", calls) => Some(stream),
                // Another request held the permit.
                _ = read_response(&mut stream) => None,
            }
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_above_the_capacity_are_refused() {
    let rig = Rig::start().await;
    let (Rig { app, ada, payments }, occupant) = (&rig, rig.occupy().await);
    let dashboard = "http://localhost:3000";
    let refused = ada.send(Method::GET, "/v1/me", |request| request.header("origin", dashboard)).await;
    refused.expect_error(503, "unavailable");
    assert_eq!((refused.header("retry-after"), is_refused(&refused)), ("1", true));
    assert_eq!(refused.header("access-control-allow-origin"), dashboard);
    let other = ada.send(Method::GET, "/v1/me", |request| request.header("origin", "http://localhost:3001")).await;
    assert_eq!((other.status, other.header("access-control-allow-origin")), (503, ""));
    let anonymous = app.anonymous();
    // Each path has its error format.
    assert_eq!(anonymous.post("/oauth/token", json!({})).await.expect(503)["error"], "temporarily_unavailable");
    assert!(anonymous.post("/v1/hooks/payments", json!({})).await.expect(503).is_null());
    for path in ["/healthz", "/readyz", "/v1/config"] {
        anonymous.get(path).await.expect(200);
    }
    payments.inject(None);
    drop(occupant);
    eventually("the permit is released", async || (ada.get("/v1/me").await.status == 200).then_some(())).await;
}

/// Requests of nodes above their limit are refused instead of waiting, and long polls do not count while they wait.
#[tokio::test(flavor = "multi_thread")]
async fn requests_of_nodes_above_their_limit_are_refused() {
    let app = App::start().await;
    let node = ManualNode::new(&app).await;
    let (revision, _) = node.desired(0).await;
    let (path, refused) = (format!("desired?since={revision}&wait=30"), Mutex::new(None));
    let poll = async || loop {
        let response = node.send(Method::GET, &path, |request| request).await;
        if response.status != 503 {
            break;
        }
        if response.body["message"].as_str().is_some_and(|message| message.contains("at capacity")) {
            *refused.lock().unwrap() = Some(response);
        }
        sleep(Duration::from_millis(20)).await;
    };
    // Authentication waits for the lock, so the polls hold all permits until then.
    let locked = app.hold("LOCK TABLE convergence.nodes").await;
    tokio::select! {
        _ = join_all((0..100).map(|_| poll())) => panic!("the polls ended"),
        () = async {
            let refused = eventually("a poll is refused", async || refused.lock().unwrap().take()).await;
            refused.expect_error(503, "unavailable");
            assert_eq!(refused.header("retry-after"), "1");
            locked.commit("").await;
            let models = async || node.send(Method::GET, "ai/models", |request| request).await;
            eventually("a request is served", async || (models().await.status == 200).then_some(())).await;
        } => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_holds_no_permit_while_it_waits_for_its_client() {
    let rig = Rig::start().await;
    let bundle = site("page");
    let (first, last) = bundle.split_at(bundle.len() / 2);
    let head = head(&rig.ada, "/v1/orgs/ada/projects/site/deployments", bundle.len());
    let head = head.replace("application/json", "application/gzip");
    let response = eventually("the upload begins before the other request", async || {
        // The other request of an earlier attempt may still hold the permit.
        rig.payments.inject(None);
        eventually("a free permit", async || (rig.ada.get("/v1/me").await.status == 200).then_some(())).await;
        let mut upload = connect(&rig.app).await;
        upload.write_all(&[head.as_bytes(), first].concat()).await.unwrap();
        sleep(Duration::from_millis(100)).await;
        // The upload continues although another request has taken the permit.
        let _occupant = rig.occupy().await;
        rig.ada.get("/v1/me").await.expect(503);
        upload.write_all(last).await.ok()?;
        read_response(&mut upload).await.filter(|response| !response.contains("x-request-id: refused"))
    })
    .await;
    assert!(response.starts_with("http/1.1 201 "), "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_keeps_the_connection_open() {
    let rig = Rig::start().await;
    let (Rig { app, ada, .. }, _occupant) = (&rig, rig.occupy().await);
    let mut stream = connect(app).await;
    for body in [r#"{"name":"site"}"#.to_owned(), " ".repeat(8 * 1024), String::new()] {
        let request = head(ada, "/v1/orgs/ada/projects", body.len()) + &body;
        stream.write_all(request.as_bytes()).await.unwrap();
        let response = read_response(&mut stream).await.unwrap();
        assert!(response.starts_with("http/1.1 503 ") && response.contains("x-request-id: refused"), "{response}");
        assert!(!response.contains("connection: close"), "{response}");
    }
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let response = read_response(&mut stream).await.unwrap();
    assert!(response.starts_with("http/1.1 200 "), "{response}");
    // The server does not read a long body.
    stream.write_all(head(ada, "/v1/orgs/ada/projects", 64 * 1024 + 1).as_bytes()).await.unwrap();
    let response = read_response(&mut stream).await.unwrap();
    assert!(response.starts_with("http/1.1 503 ") && response.contains("connection: close"), "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_adapts_to_slow_connections_and_recovers() {
    check_adaptation(2, 0).await;
}

/// Requests wait for a connection of their thread, and for the lookups on another one.
#[tokio::test(flavor = "multi_thread")]
async fn limit_adapts_to_slow_connections_of_a_thread_and_recovers() {
    check_adaptation(4, 1).await;
}

async fn check_adaptation(connections: usize, threads: usize) {
    let (_database, proxy, app, ada) = start_behind_proxy(connections, threads).await;
    proxy.set_fault(NetworkFault::Delay(Duration::from_millis(10)));
    let served = AtomicUsize::new(0);
    tokio::select! {
        _ = join_all((0..CLIENTS).map(|_| send_repeatedly(&ada, &served))) => panic!("the clients stopped"),
        () = check_overload(&app, &ada, &served) => {}
    }
    proxy.set_fault(NetworkFault::None);
    for _ in 0..10 {
        // The limit grows while the server is idle.
        sleep(Duration::from_secs(3)).await;
        let responses = join_all((0..CLIENTS).map(|_| ada.get("/v1/me"))).await;
        if !responses.iter().any(is_refused) {
            ada.get("/v1/me").await.expect(200);
            return;
        }
    }
    panic!("the limit did not recover");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_an_organization_wait_unless_the_server_is_overloaded() {
    let (_database, proxy, _app, ada) = start_behind_proxy(5, 0).await;
    // The last of eight changes waits for several others, for longer than it may wait during an overload.
    proxy.set_fault(NetworkFault::Delay(Duration::from_millis(5)));
    for round in 0..3 {
        wait_for_concurrent_changes(&ada, &format!("before {round}")).await;
    }
    proxy.set_fault(NetworkFault::Delay(Duration::from_millis(10)));
    let (served, renamed, refused) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    tokio::select! {
        _ = join_all((0..CLIENTS).map(|_| send_repeatedly(&ada, &served))) => panic!("the clients stopped"),
        _ = join_all((0..CLIENTS / 2).map(|client| rename_repeatedly(&ada, client, &renamed, &refused))) => {
            panic!("the clients stopped")
        }
        () = async {
            eventually("waiting changes are refused", async || (refused.load(Ordering::Relaxed) >= 4).then_some(())).await;
            let before = renamed.load(Ordering::Relaxed);
            eventually("a change is served", async || (renamed.load(Ordering::Relaxed) > before).then_some(())).await;
        } => {}
    }
    wait_for_concurrent_changes(&ada, "after").await;
}

/// Waits until eight changes of one organization that are sent at the same time are served. On a busy machine, one of them
/// may wait too long for the others.
async fn wait_for_concurrent_changes(caller: &Caller, name: &str) {
    eventually("eight changes are served", async || {
        let responses = join_all((0..8).map(|number| rename(caller, format!("{name} {number}")))).await;
        assert!(responses.iter().all(|response| [200, 503].contains(&response.status)), "{responses:?}");
        responses.iter().all(|response| response.status == 200).then_some(())
    })
    .await;
}

async fn rename(caller: &Caller, name: String) -> ApiResponse {
    caller.patch("/v1/orgs/ada", json!({ "name": name })).await
}

/// Counts the changes that are served, and those that are refused while they wait for the write permit.
async fn rename_repeatedly(caller: &Caller, client: usize, renamed: &AtomicUsize, refused: &AtomicUsize) {
    for number in 0.. {
        let response = rename(caller, format!("{client} {number}")).await;
        if is_refused(&response) {
            sleep(Duration::from_millis(20)).await;
        } else if response.status == 200 {
            renamed.fetch_add(1, Ordering::Relaxed);
        } else if response.body["message"].as_str().is_some_and(|message| message.contains("at capacity")) {
            response.expect_error(503, "unavailable");
            assert_eq!(response.header("retry-after"), "1");
            refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Starts an app that reaches Postgres through a proxy, with this many connections, of which this many threads have their
/// own ones. Returns it with a caller.
async fn start_behind_proxy(connections: usize, threads: usize) -> (TestDatabase, Proxy, App, Caller) {
    let database = TestDatabase::create().await;
    let (proxy, url) = Proxy::start_for_postgres(&database.url()).await.unwrap();
    let app = App::with(|config| {
        use_short_waits(config);
        config.database = store::Config { connections, threads, ..store::Config::new(Secret::new(url), "test") };
    });
    let app = app.await;
    // After the start, jobs may use all connections for a while.
    let ada = eventually("a sign-in", async || {
        let session = app.anonymous().post("/v1/auth/dev/login", json!({ "subject": "ada" })).await;
        (session.status == 200).then(|| app.with_token(session.body["token"].as_str().unwrap()))
    });
    let ada = ada.await;
    (database, proxy, app, ada)
}

async fn send_repeatedly(caller: &Caller, served: &AtomicUsize) {
    loop {
        let response = caller.get("/v1/me").await;
        if is_refused(&response) {
            sleep(Duration::from_millis(20)).await;
        } else if response.status == 200 {
            served.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Checks that some requests are refused, although the number of clients is below the configured limit, and that
/// requests that have begun are not.
async fn check_overload(app: &App, ada: &Caller, served: &AtomicUsize) {
    let refused = eventually("a request is refused", async || Some(ada.get("/v1/me").await).filter(is_refused)).await;
    refused.expect_error(503, "unavailable");
    let before = served.load(Ordering::Relaxed);
    eventually("a request is served", async || (served.load(Ordering::Relaxed) > before).then_some(())).await;
    // While the body is late, the request holds no permit.
    let body = r#"{"name":"site"}"#;
    let begun = eventually("a request with a late body begins", async || {
        let mut stream = connect(app).await;
        let (first, last) = body.split_at(8);
        let first = head(ada, "/v1/orgs/ada/projects", body.len()) + first;
        stream.write_all(first.as_bytes()).await.unwrap();
        sleep(Duration::from_millis(200)).await;
        // The response to a refused request does not wait for the rest of its body.
        stream.write_all(last.as_bytes()).await.ok()?;
        read_response(&mut stream).await.filter(|response| !response.contains("x-request-id: refused"))
    });
    let begun = begun.await;
    assert!(!begun.contains("the server is at capacity"), "{begun}");
}

//! `kill -9` of the node in the middle of a stream, and of the control plane and its Postgres while a call is settled.

use sandbox::{AiFault, AiServer};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{PrivatePostgres, TestDatabase};

use super::{AI, LEDGER};
use crate::convergence::node_process::{Node, workerd};
use crate::paused_commit::{CRASHES, pause_inserts};
use crate::process::Process;
use crate::support::{bundle, client, eventually};

const HOST: &str = "site-ada.localhost";
const CATALOG: &str = r#"{"models":[{"id":"small","lane":"value","inputMicroCentsPerMTok":6000000,
    "outputMicroCentsPerMTok":24000000,"contextTokens":128000}]}"#;
/// A worker that asks the model with the body of the request, and streams the answer.
const WORKER: &str = r#"export default {
  async fetch(request, env) {
    if (!env.ai) return new Response("not granted", { status: 503 });
    const messages = [{ role: "user", content: await request.text() }];
    return new Response(await env.ai.chat({ model: "small", messages, stream: true }));
  },
};"#;

/// The credit that an operator gave to Ada's organization.
const CREDIT: &str = "
    INSERT INTO billing.accounts SELECT id, 1000000000, 1, now() FROM orgs.orgs;
    INSERT INTO billing.ledger (org_id, ledger_id, kind, amount_micro_cents, balance_micro_cents, created_at)
        SELECT id, 1, 'adjust', 1000000000, 1000000000, now() FROM orgs.orgs;";

struct Kit {
    server: Process,
    node: Node,
    postgres: PrivatePostgres,
    upstream: AiServer,
    session: String,
    _folder: TempDir,
}

impl Kit {
    async fn start() -> Option<Self> {
        let workerd = workerd()?;
        let postgres = PrivatePostgres::start()?;
        let folder = TempDir::new().unwrap();
        let catalog = folder.path().join("models.json");
        std::fs::write(&catalog, CATALOG).unwrap();
        let database = TestDatabase::create_in(&postgres).await;
        database.run(&pause_inserts("billing.ledger")).await;
        let server = Process::on(database, &[("SVC_AI_MODELS", catalog.display().to_string())]).await;
        let upstream = AiServer::start().await;
        let settings = [&[("SVC_NODE_WORKERD", workerd)][..], &upstream.settings()].concat();
        let node = Node::start(&server, &settings).await;
        let session = server.sign_in().await;
        let kit = Self { server, node, postgres, upstream, session, _folder: folder };
        kit.server.json(&kit.session, "POST", "/v1/orgs/ada/projects", Some(json!({ "name": "site" }))).await;
        kit.server.json(&kit.session, "POST", AI, Some(json!({}))).await;
        kit.server.database.run(CREDIT).await;
        let deploy = client().post(format!("{}/v1/orgs/ada/projects/site/deployments", kit.server.base));
        let files: [(&str, &[u8]); 2] = [("svc.json", br#"{"ai":true}"#), ("worker/index.js", WORKER.as_bytes())];
        let deploy = deploy.bearer_auth(&kit.session).header("content-type", "application/gzip").body(bundle(&files));
        assert_eq!(deploy.send().await.unwrap().status(), 201);
        eventually("the worker", async || kit.node.page(HOST, "/").await).await;
        Some(kit)
    }

    /// Asks the model through the worker, and returns the response without reading it.
    async fn ask(&self, question: &str) -> reqwest::Response {
        let url = format!("http://{}/", self.node.edge);
        client().post(url).header("host", HOST).body(question.to_owned()).send().await.unwrap()
    }

    /// Returns the ledger's rows of calls, oldest first, as soon as there are this many.
    async fn calls(&self, count: usize) -> Vec<Value> {
        let rows = eventually("the deduction", async || {
            let page = self.server.json(&self.session, "GET", LEDGER, None).await;
            let rows: Vec<Value> =
                page["items"].as_array()?.iter().rev().filter(|row| row["kind"] == "call").cloned().collect();
            (rows.len() >= count).then_some(rows)
        })
        .await;
        assert_eq!(rows.len(), count, "{rows:?}");
        rows
    }

    /// Asserts that every call has ended and all sums are correct.
    async fn is_consistent(&self) {
        let open = "SELECT count(*) FROM billing.calls WHERE ended_at IS NULL";
        eventually("the end of all calls", async || (self.server.database.number(open).await == 0).then_some(())).await;
        let violations = chaos::violations(&self.server.database.url(), &["test"]).await.unwrap();
        assert_eq!(violations, Vec::<String>::new());
    }
}

/// Returns the exact cost of a question: 6 microcents per token of input, and 24 per token of output.
fn cost(question: &str) -> i64 {
    let input = json!([{ "role": "user", "content": question }]).to_string();
    let tokens = |text: &str| i64::try_from(text.len().div_ceil(4)).unwrap();
    6 * tokens(&input) + 24 * tokens(&format!("You said: {question}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn call_is_deducted_once_when_a_process_is_killed() {
    let Some(mut kit) = Kit::start().await else { return };
    // The fixture's first request for the page also made a call.
    let mut count = kit.calls(1).await.len();
    for crash in CRASHES {
        let question = format!("{crash:?}");
        kit.server.database.run("INSERT INTO paused VALUES (true)").await;
        assert!(kit.ask(&question).await.text().await.unwrap().contains("[DONE]"));
        crash.hit(&mut kit.server, &mut kit.postgres, "DELETE FROM paused").await;
        count += 1;
        let last = kit.calls(count).await.pop().unwrap();
        assert_eq!((&last["amountMicroCents"], &last["estimated"]), (&json!(-cost(&question)), &json!(false)));
    }
    // Kill the node in the middle of a stream.
    kit.upstream.inject(Some(AiFault::Pause(3)));
    let mut response = kit.ask("Is the answer longer than one event?").await;
    assert!(response.chunk().await.unwrap().is_some());
    kit.node.kill();
    kit.upstream.inject(None);
    kit.node.restart();
    let last = kit.calls(count + 1).await.pop().unwrap();
    assert_eq!(last["estimated"], true);
    kit.is_consistent().await;
    // A restart deducts nothing again.
    kit.node.kill();
    kit.server.kill_and_restart().await;
    kit.node.restart();
    let page = eventually("the worker", async || kit.node.page(HOST, "/").await).await;
    assert!(page.contains("[DONE]"), "{page}");
    kit.calls(count + 2).await;
    kit.is_consistent().await;
}

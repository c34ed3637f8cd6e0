//! The objects in `env`.

use actix_web::web::Bytes;
use futures_util::{Stream, StreamExt as _};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{HOST, Rig};
use crate::control_plane::State;
use crate::running::eventually;
use crate::timeout::TIMEOUT;

const PREFIX: &str = "sto_01jd0000000000000000000000";

/// Returns the names in `env`, and tries to reach the services behind them.
const CODE: &str = r#"
import { env as imported } from "cloudflare:workers";
const captured = [];
const attempts = {};
for (const name of ["svc:storage", "svc:assets", "internal:storage"]) {
  try { await import(name); attempts[name] = "imported"; } catch (error) { attempts[name] = "refused"; }
}
const Fetcher = Object.getPrototypeOf(imported.assets);
for (const holder of [Fetcher, globalThis]) {
  const original = holder.fetch;
  holder.fetch = function (...parameters) { captured.push(this); return Reflect.apply(original, this, parameters); };
}
const isFetcher = (value) => value instanceof Fetcher.constructor;
function reachable(value, seen = new Set()) {
  if ((typeof value !== "object" && typeof value !== "function") || value === null || seen.has(value)) return false;
  seen.add(value);
  if (isFetcher(value)) return true;
  return Reflect.ownKeys(value).some((key) => {
    try { return reachable(value[key], seen); } catch { return false; }
  });
}
export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    if (url.pathname === "/forge") {
      const headers = { "svc-worker-key": "forged", "svc-worker-binding": "storage" };
      const response = await env.assets.fetch("http://host/head", { method: "POST", headers, body: '{"key":"a"}' });
      return new Response(response.status + " " + (await response.text()));
    }
    if (url.pathname === "/reach") {
      captured.length = 0;
      let code;
      try { await env.storage.head("a"); } catch (error) { code = error.code; }
      return Response.json({ attempts, code, captured: captured.length, reachable: reachable(env.storage) });
    }
    return Response.json(Object.fromEntries(Object.keys(env).map((name) => [name, typeof env[name]])));
  },
};"#;

/// `/<count>` makes this number of calls and responds with their statuses. The results stay unread until the visitor
/// closes the connection.
const HOLDER: &str = r#"
export default {
  async fetch(request, env) {
    const count = Number(new URL(request.url).pathname.slice(1));
    if (count === 0) return new Response("ready");
    const call = () => env.assets.fetch("http://assets/large.bin");
    const held = await Promise.all(Array.from({ length: count }, call));
    return new Response(new ReadableStream({ async pull(controller) {
      await scheduler.wait(10);
      controller.enqueue(new TextEncoder().encode(held.map(({ status }) => status).join()));
    } }));
  },
};"#;

/// Makes calls with [`HOLDER`]. Returns their statuses, and the response that holds them.
async fn hold(rig: &Rig, project: &str, count: usize) -> (String, impl Stream<Item = reqwest::Result<Bytes>> + use<>) {
    let (host, path) = (format!("{project}.localhost"), format!("/{count}"));
    let response = rig.node.visitor.request(Method::GET, &host, &path).send().await.unwrap();
    let mut chunks = response.bytes_stream().boxed();
    let statuses = chunks.next().await.unwrap().unwrap();
    (String::from_utf8(statuses.to_vec()).unwrap(), chunks)
}

async fn names(rig: &Rig) -> Value {
    serde_json::from_str(&rig.node.visitor.get(HOST, "/").await.body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn env_contains_what_is_granted() {
    let Some(rig) = Rig::start().await else { return };
    rig.serves(CODE).await;
    assert_eq!(names(&rig).await, json!({ "assets": "object" }));
    rig.core.set_part("app", "storage", json!({ "prefix": PREFIX, "quotaBytes": 1 }));
    rig.node.visitor.sees(HOST, "/", 200, "storage").await;
    rig.core.set_secrets("app", &[("API_KEY", "x")]);
    rig.node.visitor.sees(HOST, "/", 200, "API_KEY").await;
    assert_eq!(names(&rig).await, json!({ "assets": "object", "storage": "object", "API_KEY": "string" }));
    rig.core.set_part("app", "storage", Value::Null);
    rig.core.set_part("app", "secrets", Value::Null);
    rig.node.visitor.sees(HOST, "/", 200, r#"{"assets":"object"}"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_code_does_not_reach_the_service_behind_a_binding() {
    let Some(rig) = Rig::start().await else { return };
    rig.core.set_part("app", "storage", json!({ "prefix": PREFIX, "quotaBytes": 1 }));
    rig.serves(CODE).await;
    let reached: Value = serde_json::from_str(&rig.node.visitor.get(HOST, "/reach").await.body).unwrap();
    let attempts = json!({ "svc:storage": "refused", "svc:assets": "refused", "internal:storage": "refused" });
    // The node has no object storage, so this error shows that the call reached the node.
    let expected = json!({ "attempts": attempts, "code": "storage_unavailable", "captured": 0, "reachable": false });
    assert_eq!(reached, expected);
    // `workerd` replaces the forged headers, so the request reaches the assets binding, which refuses the method.
    let forged = rig.node.visitor.get(HOST, "/forge").await.body;
    assert!(forged.starts_with("405 "), "{forged}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_limited_for_each_process_and_owner() {
    // A process may have two.
    let Some(rig) = Rig::start_with(|workers| workers.max_connections = 4).await else { return };
    let large = vec![0; 8 << 20];
    let files = [("worker/index.js", HOLDER.as_bytes()), ("assets/large.bin", large.as_slice())];
    for (owner, project) in [("usr_1", "app"), ("usr_1", "two"), ("usr_1", "three"), ("usr_2", "four")] {
        rig.core.deploy_as(owner, project, &files);
        rig.observes(project, State::Serving).await;
        rig.node.visitor.sees(&format!("{project}.localhost"), "/", 200, "ready").await;
    }
    let (statuses, app) = hold(&rig, "app", 2).await;
    assert_eq!(statuses, "200,200");
    assert_eq!(hold(&rig, "app", 1).await.0, "429", "more than the limit of a process");
    let (statuses, _two) = hold(&rig, "two", 2).await;
    assert_eq!(statuses, "200,200");
    assert_eq!(hold(&rig, "three", 1).await.0, "429", "more than the limit of an owner");
    let (statuses, _four) = hold(&rig, "four", 2).await;
    assert_eq!(statuses, "200,200");
    drop(app);
    let admitted = async || (hold(&rig, "three", 1).await.0 == "200").then_some(());
    eventually("the end of the connections", admitted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_without_a_known_process_is_closed() {
    let rig = Rig::simulated(|_| ()).await;
    let mut connection = UnixStream::connect(rig.dir.path().join("run/bindings")).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: node\r\nsvc-worker-key: forged\r\nsvc-worker-binding: assets\r\n\r\n";
    connection.write_all(request).await.unwrap();
    let mut response = String::new();
    timeout(TIMEOUT, connection.read_to_string(&mut response)).await.unwrap().unwrap();
    assert!(response.starts_with("HTTP/1.1 403 ") && response.contains("\r\nconnection: close\r\n"), "{response}");
}

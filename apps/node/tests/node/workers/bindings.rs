//! The objects in `env`.

use serde_json::{Value, json};

use super::{HOST, Rig};

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

//! Secrets, and changes of the environment.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::isolation::processes;
use super::protections::metrics;
use super::{HOST, Rig, with_workers, workerd};
use crate::control_plane::{ControlPlane, State};
use crate::running::{Dir, RunningNode, until};
use crate::timeout::TIMEOUT;
use crate::visitor::Visitor;

/// Returns the secrets and the version of the code.
pub fn shows(version: &str) -> String {
    format!(
        "export default {{ fetch(request, env) {{
          const {{ assets, ...secrets }} = env;
          return Response.json({{ version: '{version}', ...secrets }});
        }} }};"
    )
}

/// Returns the number of processes that started.
async fn starts(rig: &Rig) -> usize {
    let shown = metrics(rig.node.metrics.unwrap()).await;
    let line = r#"svc_node_worker_starts_total{outcome="ready"} "#;
    shown.lines().find_map(|it| it.strip_prefix(line)).map_or(0, |count| count.parse().unwrap())
}

async fn seen(visitor: &Visitor) -> Value {
    let response = visitor.get(HOST, "/").await;
    assert_eq!(response.status, 200, "{response:?}");
    serde_json::from_str(&response.body).unwrap()
}

/// Visitors that send requests until they are stopped. Every response must be 200, and the number in the secret `N`
/// must not decrease for any of them.
struct Visitors {
    is_stopped: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
    responses: Arc<AtomicUsize>,
}

impl Visitors {
    fn start(rig: &Rig) -> Self {
        let (is_stopped, responses) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let address = rig.node.visitor.address();
        let visit = |_| {
            let (visitor, is_stopped, responses) =
                (Visitor::new(address), Arc::clone(&is_stopped), Arc::clone(&responses));
            tokio::spawn(async move {
                let mut last = 0;
                while !is_stopped.load(Ordering::Relaxed) {
                    let number = seen(&visitor).await["N"].as_str().map_or(0, |number| number.parse().unwrap());
                    assert!(number >= last, "{number} after {last}");
                    last = number;
                    responses.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let tasks = (0..4).map(visit).collect();
        Self { is_stopped, tasks, responses }
    }

    async fn stop(self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        assert!(self.responses.load(Ordering::Relaxed) > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_change_without_a_failed_request() {
    let Some(rig) = Rig::start().await else { return };
    rig.serves(&shows("1")).await;
    let visitors = Visitors::start(&rig);
    for number in 1..=4 {
        let number = number.to_string();
        rig.core.set_secrets("app", &[("N", &number), ("KEPT", "same")]);
        rig.node.visitor.sees(HOST, "/", 200, &format!(r#""N":"{number}""#)).await;
    }
    assert_eq!(seen(&rig.node.visitor).await, json!({ "version": "1", "N": "4", "KEPT": "same" }));
    visitors.stop().await;
    rig.core.set_secrets("app", &[("KEPT", "same")]);
    rig.node.visitor.sees(HOST, "/", 200, r#"{"version":"1","KEPT":"same"}"#).await;
    rig.core.set_part("app", "secrets", Value::Null);
    rig.node.visitor.sees(HOST, "/", 200, r#"{"version":"1"}"#).await;
    // The changes were not deployments.
    assert_eq!(rig.core.batches().iter().map(|(_, reports)| reports).sum::<usize>(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_quick_changes_start_few_processes() {
    let Some(rig) = Rig::start().await else { return };
    rig.serves(&shows("1")).await;
    let visitors = Visitors::start(&rig);
    let began = Instant::now();
    for number in 1..=20 {
        rig.core.set_secrets("app", &[("N", &number.to_string())]);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // After a pause of 100 ms, the node does not wait for the next change. A busy machine makes such pauses.
    let pauses = usize::try_from(began.elapsed().as_millis() / 100).unwrap();
    rig.node.visitor.sees(HOST, "/", 200, r#""N":"20""#).await;
    visitors.stop().await;
    let started = starts(&rig).await;
    assert!(started <= 4 + pauses, "{started} processes and {pauses} pauses");
}

#[tokio::test(flavor = "multi_thread")]
async fn same_content_under_a_new_revision_starts_no_process() {
    let Some(rig) = Rig::start().await else { return };
    rig.core.set_secrets("app", &[("N", "1")]);
    rig.serves(&shows("1")).await;
    for quota in 1..=3 {
        rig.core.set_secrets("app", &[("N", "1")]);
        rig.core.set_part("app", "storage", json!({ "prefix": "sto_1", "quotaBytes": quota }));
    }
    rig.node.visitor.sees(HOST, "/", 200, "storage").await;
    assert_eq!(starts(&rig).await, 2, "only the grant of the storage");
    rig.core.set_part("app", "storage", json!({ "prefix": "sto_1", "quotaBytes": 4 }));
    rig.core.set_secrets("app", &[("N", "1")]);
    // The node receives this change after the others.
    rig.core.deploy("other", &[("assets/index.html", b"other")]);
    rig.node.visitor.sees("other.localhost", "/", 200, "other").await;
    rig.core.set_secrets("app", &[("N", "2")]);
    rig.node.visitor.sees(HOST, "/", 200, r#""N":"2""#).await;
    assert_eq!(starts(&rig).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_deploys_and_changes_end_with_the_last_of_each() {
    let Some(rig) = Rig::start().await else { return };
    rig.core.set_secrets("app", &[("N", "0")]);
    rig.serves(&shows("1")).await;
    let visitors = Visitors::start(&rig);
    for round in 0..3 {
        let number = |offset: usize| (round * 10 + offset).to_string();
        rig.core.set_secrets("app", &[("N", &number(1))]);
        rig.deploy(&shows("2"));
        rig.core.set_secrets("app", &[("N", &number(2))]);
        tokio::time::sleep(Duration::from_millis(120)).await;
        rig.core.set_secrets("app", &[("N", &number(3))]);
        // A rollback.
        rig.deploy(&shows("1"));
        rig.core.set_secrets("app", &[("N", &number(4))]);
        rig.deploy("throw new Error('does not start')");
        rig.deploy(&shows(&format!("last {round}")));
        rig.core.set_secrets("app", &[("N", &number(5))]);
        let last = format!(r#"{{"version":"last {round}","N":"{}"}}"#, number(5));
        rig.node.visitor.sees(HOST, "/", 200, &last).await;
    }
    // A deployment that does not start neither delays a change nor prevents it.
    rig.deploy("throw new Error('does not start')");
    rig.observes("app", State::Failed).await;
    rig.core.set_secrets("app", &[("N", "100")]);
    rig.node.visitor.sees(HOST, "/", 200, r#"{"version":"last 2","N":"100"}"#).await;
    visitors.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_that_prevents_the_start_is_reported_and_the_previous_one_is_served() {
    const CODE: &str = r#"
      import { env } from "cloudflare:workers";
      if (env.MODE === "bad") throw new Error("MODE is wrong");
      export default { fetch: (request, env) => new Response(env.MODE) };"#;
    let Some(rig) = Rig::start().await else { return };
    rig.core.set_secrets("app", &[("MODE", "good")]);
    rig.serves(CODE).await;
    rig.core.set_secrets("app", &[("MODE", "bad")]);
    let failed = rig.observes("app", State::Failed).await;
    assert!(failed.version == 1 && failed.message.as_ref().unwrap().contains("MODE is wrong"), "{failed:?}");
    assert_eq!(rig.node.visitor.get(HOST, "/").await.body, "good");
    rig.core.set_secrets("app", &[("MODE", "better")]);
    rig.observes("app", State::Serving).await;
    rig.node.visitor.sees(HOST, "/", 200, "better").await;

    // The deployment fails with one environment, and starts with the next one.
    rig.core.set_secrets("app", &[("MODE", "bad")]);
    rig.observes("app", State::Failed).await;
    rig.deploy(&format!("{CODE}// 2"));
    assert_eq!(rig.observes("app", State::Failed).await.version, 2);
    assert_eq!(rig.node.visitor.get(HOST, "/").await.body, "better");
    rig.core.set_secrets("app", &[("MODE", "best")]);
    rig.node.visitor.sees(HOST, "/", 200, "best").await;
    until("the report", || rig.core.last_report("app") == Some((2, State::Serving))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crashed_process_is_not_restarted_with_an_outdated_environment() {
    const CODE: &str = r#"
      import { env } from "cloudflare:workers";
      if (!env.KEY) throw new Error("KEY is missing");
      export default { fetch: (request, env) => new Response(env.KEY) };"#;
    let Some(rig) = Rig::start().await else { return };
    rig.core.set_secrets("app", &[("KEY", "leaked")]);
    rig.serves(CODE).await;
    let [(pid, _)] = processes(&rig)[..] else { panic!("more than one process") };
    rig.core.set_part("app", "secrets", Value::Null);
    rig.observes("app", State::Failed).await;
    assert_eq!(rig.node.visitor.get(HOST, "/").await.body, "leaked");

    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    rig.observes("app", State::Crashed).await;
    // Requests make the node start the process, which fails with the current environment.
    let failed = timeout(TIMEOUT, async {
        while rig.core.last_report("app") != Some((1, State::Failed)) {
            let response = rig.node.visitor.get(HOST, "/").await;
            assert_eq!(response.status, 503, "{response:?}");
        }
    });
    failed.await.unwrap();
    rig.core.set_secrets("app", &[("KEY", "rotated")]);
    rig.node.visitor.sees(HOST, "/", 200, "rotated").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replaced_processes_finish_their_requests_and_older_ones_are_stopped() {
    const CODE: &str = r#"
      export default { fetch(request, env) {
        if (!request.url.endsWith("/held")) return new Response(env.N);
        return new Response(new ReadableStream({ async pull(controller) {
          controller.enqueue(new TextEncoder().encode(env.N));
          await scheduler.wait(50);
        } }));
      } };"#;
    let Some(rig) = Rig::start().await else { return };
    rig.core.set_secrets("app", &[("N", "0")]);
    rig.serves(CODE).await;
    let mut held = Vec::new();
    for number in 0..5 {
        let number = number.to_string();
        rig.core.set_secrets("app", &[("N", &number)]);
        rig.node.visitor.sees(HOST, "/", 200, &number).await;
        let response = rig.node.visitor.request(Method::GET, HOST, "/held").send().await.unwrap();
        let mut chunks = response.bytes_stream();
        assert_eq!(chunks.next().await.unwrap().unwrap(), number);
        held.push(chunks);
    }
    // The processes exit well before the drain timeout.
    until("the exit of the older processes", || processes(&rig).len() == 3).await;
    for (number, mut chunks) in held.into_iter().enumerate() {
        if number < 2 {
            while let Some(Ok(_)) = chunks.next().await {}
        } else {
            for _ in 0..10 {
                assert_eq!(chunks.next().await.unwrap().unwrap(), number.to_string());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_part_keeps_its_last_state() {
    let Some(rig) = Rig::start().await else { return };
    rig.core.set_secrets("app", &[("N", "1")]);
    rig.serves(&shows("1")).await;
    for project in ["app", "new"] {
        rig.core.make_unavailable(project, "secrets");
        rig.core.set_secrets(project, &[("N", "2")]);
    }
    rig.core.deploy("new", &[("worker/index.js", shows("new").as_bytes())]);
    let waits = "being deployed";
    rig.node.visitor.sees("new.localhost", "/", 503, waits).await;
    assert_eq!(seen(&rig.node.visitor).await, json!({ "version": "1", "N": "1" }));
    let Rig { core, dir, node, .. } = rig;
    node.stop().await;

    // After a restart, the node receives the full state.
    core.deploy("other", &[("assets/index.html", b"other")]);
    let node = RunningNode::start_as(&with_workers(&core, &dir, workerd().unwrap())).await;
    node.visitor.sees("other.localhost", "/", 200, "other").await;
    assert_eq!(seen(&node.visitor).await, json!({ "version": "1", "N": "1" }));
    node.visitor.sees("new.localhost", "/", 503, waits).await;
    core.make_available();
    for (project, version) in [("app", "1"), ("new", "new")] {
        core.set_secrets(project, &[("N", "3")]);
        let shown = format!(r#"{{"version":"{version}","N":"3"}}"#);
        node.visitor.sees(&format!("{project}.localhost"), "/", 200, &shown).await;
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_process_starts_with_the_current_environment_at_the_next_request() {
    let idle = Duration::from_secs(1);
    let Some(rig) = Rig::start_with(|workers| workers.idle = idle).await else { return };
    rig.serves(&shows("1")).await;
    let run = rig.dir.path().join("run");
    until("exit of the idle worker", || fs::read_dir(&run).unwrap().count() == 1).await;
    let before = starts(&rig).await;
    for number in 1..=3 {
        rig.core.set_secrets("app", &[("N", &number.to_string())]);
    }
    // The node receives this change after the others.
    rig.core.deploy("other", &[("assets/index.html", b"other")]);
    rig.node.visitor.sees("other.localhost", "/", 200, "other").await;
    assert_eq!(starts(&rig).await, before);
    assert_eq!(seen(&rig.node.visitor).await, json!({ "version": "1", "N": "3" }));
    assert_eq!(starts(&rig).await, before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_arrive_unchanged() {
    let Some(rig) = Rig::start().await else { return };
    let long = "ab\u{1F511}\n".repeat(64 * 1024 / 7);
    let values = [
        ("QUOTES", r#"'"`\ ${x} "); ( = "#),
        ("LINES", "one\ntwo\r\n\tthree\u{1}\u{7f}\u{85}\u{2028}"),
        ("UNICODE", "e\u{301} é \u{10FFFF} \u{FEFF} 🔑"),
        ("EXACTLY_EIGHT", "12345678"),
        ("SEVEN", "1234567"),
        ("LONG", long.as_str()),
        ("_", "-"),
    ];
    rig.core.set_secrets("app", &values);
    rig.serves(&shows("1")).await;
    let seen = seen(&rig.node.visitor).await;
    for (name, value) in values {
        assert!(seen[name] == value, "{name}: {}", &seen[name].to_string()[..40.min(value.len())]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn largest_environment_starts() {
    const CODE: &str = "export default { fetch: (request, env) =>
      Response.json(Object.values(env).filter((it) => typeof it === 'string').map((it) => it.length + it.slice(-4))) };";
    let Some(rig) = Rig::start().await else { return };
    let named: Vec<_> = (0..200).map(|number| (format!("SECRET_{number}"), format!("{number:0>65535}#"))).collect();
    let values: Vec<_> = named.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    rig.core.set_secrets("app", &values);
    rig.serves(CODE).await;
    let mut seen: Vec<String> = serde_json::from_str(&rig.node.visitor.get(HOST, "/").await.body).unwrap();
    seen.sort();
    assert_eq!(seen, (0..200).map(|number| format!("65536{number:0>3}#")).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_node_has_the_environment_while_the_control_plane_is_down() {
    let Some(rig) = Rig::start().await else { return };
    rig.core.set_secrets("app", &[("N", "1")]);
    rig.serves(&shows("1")).await;
    rig.core.set_secrets("app", &[("N", "2")]);
    rig.node.visitor.sees(HOST, "/", 200, r#""N":"2""#).await;
    let Rig { mut core, dir, node, .. } = rig;
    node.stop().await;
    core.stop().await;
    let node = RunningNode::start_as(&with_workers(&core, &dir, workerd().unwrap())).await;
    assert_eq!(seen(&node.visitor).await, json!({ "version": "1", "N": "2" }));
    core.set_secrets("app", &[("N", "3")]);
    core.restart().await;
    node.visitor.sees(HOST, "/", 200, r#""N":"3""#).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_save_leaves_no_outdated_environment_and_is_retried() {
    let Some(rig) = Rig::start().await else { return };
    rig.core.set_secrets("app", &[("N", "1")]);
    rig.serves(&shows("1")).await;
    let saved = || fs::read_dir(rig.dir.path().join("environments")).unwrap().count();
    until("the save", || saved() == 1).await;
    let (temporary, moved) = (rig.dir.path().join("tmp"), rig.dir.path().join("moved"));
    fs::rename(&temporary, &moved).unwrap();
    rig.core.set_secrets("app", &[("N", "2")]);
    until("the removal of the outdated file", || saved() == 0).await;
    fs::rename(&moved, &temporary).unwrap();
    until("the retry", || saved() == 1).await;
    let Rig { mut core, dir, node, .. } = rig;
    node.stop().await;
    core.stop().await;
    let node = RunningNode::start_as(&with_workers(&core, &dir, workerd().unwrap())).await;
    assert_eq!(seen(&node.visitor).await["N"], "2");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_with_another_credential_waits_for_the_environment() {
    const OTHER: &str = "svc_nod_another";
    let Some(workerd) = workerd() else { return };
    let (mut core, dir) = (ControlPlane::start().await, Dir::new());
    let code = shows("1");
    core.set_secrets("app", &[("N", "1")]);
    core.deploy("app", &[("worker/index.js", code.as_bytes()), ("assets/a.txt", b"asset")]);
    let node = RunningNode::start_as(&with_workers(&core, &dir, workerd.clone())).await;
    node.visitor.sees(HOST, "/", 200, r#""N":"1""#).await;
    node.stop().await;
    core.stop().await;
    core.accept(OTHER);
    let mut other = with_workers(&core, &dir, workerd);
    other.authorization = format!("Bearer {OTHER}").parse().unwrap();
    let node = RunningNode::start_as(&other).await;
    let waiting = node.visitor.get(HOST, "/").await;
    assert!(waiting.status == 503 && waiting.body.contains("has not received the settings"), "{waiting:?}");
    assert_eq!(node.visitor.get(HOST, "/a.txt").await.body, "asset");
    core.restart().await;
    node.visitor.sees(HOST, "/", 200, r#""N":"1""#).await;
    node.stop().await;
}

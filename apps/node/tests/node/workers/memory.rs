//! The limit on the memory of all workers together.

use std::time::Duration;

use actix_web::web::Bytes;
use futures_util::{Stream, StreamExt as _};
use node::worker::protection::Protection;
use reqwest::Method;

use super::isolation::processes;
use super::protections::{is_shown, metrics};
use super::{HOST, Rig};
use crate::control_plane::State;
use crate::running::eventually;
use crate::visitor::VisitorResponse;

const TWO: &str = "two.localhost";
const THREE: &str = "three.localhost";
const FOUR: &str = "four.localhost";

/// Responds with 204 and an id of the process. The node ends such a request before it sends the response, so the process
/// is idle when the visitor receives it. `/fill` allocates 130 MiB and responds until the visitor closes the connection.
const CODE: &str = r#"
  let id, hoard;
  export default { fetch(request) {
    id ??= crypto.randomUUID();
    if (!request.url.endsWith("/fill")) return new Response(null, { status: 204, headers: { id } });
    hoard ??= new Uint8Array(130 << 20).fill(1);
    return new Response(new ReadableStream({ async pull(controller) {
      await scheduler.wait(10);
      controller.enqueue(new TextEncoder().encode(id));
    } }));
  } };"#;

/// Starts a node with this limit in MiB. Processes without a request in flight can be stopped immediately.
async fn rig(total_memory: u64) -> Option<Rig> {
    let change = |workers: &mut super::Workers| {
        workers.total_memory = total_memory << 20;
        workers.min_idle = Duration::ZERO;
    };
    Rig::start_with(change).await
}

impl Rig {
    async fn starts(&self, project: &str, code: &str) {
        self.core.deploy(project, &[("worker/index.js", code.as_bytes())]);
        self.observes(project, State::Serving).await;
        // The report may be sent before the route changes.
        self.node.visitor.sees(&format!("{project}.localhost"), "/", 204, "").await;
    }

    /// Returns the id of the process that responds.
    async fn process_id(&self, host: &str) -> String {
        let seen = self.node.visitor.get(host, "/").await;
        assert_eq!(seen.status, 204, "{host}: {seen:?}");
        seen.header("id").to_owned()
    }

    async fn metric(&self, name: &str) -> u64 {
        let shown = metrics(self.node.metrics.unwrap()).await;
        let value = shown.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap().parse().unwrap()
    }

    /// Waits until the node has measured that all workers together use this many MiB.
    async fn uses(&self, mebibytes: u64) {
        let reached = async || {
            let bytes = self.metric("svc_node_worker_memory_bytes").await;
            (bytes >= mebibytes << 20).then_some(())
        };
        eventually("the measurement of the workers", reached).await;
    }

    /// Waits until the node has stopped this many processes to free memory.
    async fn stops_to_free_memory(&self, count: u64) {
        let reached = async || {
            let stops = self.metric("svc_node_worker_memory_stops_total").await;
            assert!(stops <= count, "{stops} processes were stopped instead of {count}");
            (stops == count).then_some(())
        };
        eventually("a stop to free memory", reached).await;
    }

    /// Begins a request that fills the memory of the process and stays in progress. Returns the id of the process, and
    /// the response.
    async fn fill(&self, host: &str) -> (String, impl Stream<Item = reqwest::Result<Bytes>> + use<>) {
        let response = self.node.visitor.request(Method::GET, host, "/fill").send().await.unwrap();
        let mut chunks = response.bytes_stream().boxed();
        let id = chunks.next().await.unwrap().unwrap();
        (String::from_utf8(id.to_vec()).unwrap(), chunks)
    }

    /// Repeats a request until it succeeds. All responses before must state that no memory is free.
    async fn starts_when_memory_is_free(&self, host: &str) -> VisitorResponse {
        eventually("free memory", async || {
            let seen = self.node.visitor.get(host, "/").await;
            if seen.status == 204 {
                return Some(seen);
            }
            assert_no_memory(&seen);
            None
        })
        .await
    }
}

fn assert_no_memory(seen: &VisitorResponse) {
    assert_eq!(seen.status, 503, "{seen:?}");
    assert!(seen.body.contains("no memory") && !seen.header("retry-after").is_empty(), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn least_recently_used_worker_is_stopped_and_starts_again_without_a_failed_request() {
    // Two of these workers fit, three do not.
    let Some(rig) = rig(300).await else { return };
    let code = format!("const ballast = new Uint8Array(100 << 20).fill(1);{CODE}");
    rig.starts("app", &code).await;
    rig.starts("two", &code).await;
    let app = rig.process_id(HOST).await;
    let two = rig.process_id(TWO).await;
    assert_eq!(rig.process_id(HOST).await, app);

    rig.uses(200).await;
    rig.starts("three", &code).await;
    rig.stops_to_free_memory(1).await;
    assert_eq!(rig.process_id(HOST).await, app, "the more recently used worker was stopped");
    let three = rig.process_id(THREE).await;

    assert_ne!(rig.process_id(TWO).await, two);
    rig.stops_to_free_memory(2).await;
    assert_eq!(rig.process_id(THREE).await, three, "the more recently used worker was stopped");
    assert_ne!(rig.process_id(HOST).await, app);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_worker_is_stopped_before_another_one_starts() {
    // Both workers fit, but not with the memory that is reserved for a start.
    let Some(rig) = rig(160).await else { return };
    rig.starts("app", &format!("const ballast = new Uint8Array(130 << 20).fill(1);{CODE}")).await;
    let app = rig.process_id(HOST).await;
    rig.uses(130).await;
    rig.starts("two", CODE).await;
    rig.stops_to_free_memory(1).await;
    assert_ne!(rig.process_id(HOST).await, app);
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_worker_is_not_stopped_for_the_same_owner_and_others_start_after_it() {
    let Some(rig) = rig(128).await else { return };
    rig.starts("app", CODE).await;
    rig.starts("two", CODE).await;
    let (app, two) = (rig.process_id(HOST).await, rig.process_id(TWO).await);

    // The growth of one worker above the limit stops the idle one.
    let (filled, mut response) = rig.fill(HOST).await;
    assert_eq!(filled, app);
    rig.stops_to_free_memory(1).await;
    rig.uses(130).await;
    assert_eq!(rig.metric("svc_node_worker_memory_limit_bytes").await, 128 << 20);

    for _ in 0..3 {
        assert_no_memory(&rig.node.visitor.get(TWO, "/").await);
    }
    assert!(rig.metric(r#"svc_node_worker_starts_total{outcome="no_memory"}"#).await >= 3);
    // A new version has to wait, and the project's members learn the reason.
    rig.core.deploy("three", &[("worker/index.js", CODE.as_bytes())]);
    let failed = rig.observes("three", State::Failed).await;
    assert!(failed.message.as_ref().is_some_and(|message| message.contains("no memory")), "{failed:?}");
    assert_eq!(processes(&rig).len(), 1);
    assert_eq!(response.next().await.unwrap().unwrap(), app.as_bytes(), "the busy worker was stopped");
    assert_eq!(rig.process_id(HOST).await, app);

    drop(response);
    let seen = rig.starts_when_memory_is_free(TWO).await;
    assert_ne!(seen.header("id"), two);
    rig.observes("three", State::Serving).await;
    assert_ne!(rig.process_id(HOST).await, app);
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_worker_of_an_owner_above_its_share_is_stopped_for_others_only() {
    // The share of an owner is the limit of a process, 256 MiB. Two filled workers use more.
    let Some(rig) = rig(306).await else { return };
    rig.starts("app", CODE).await;
    rig.starts("two", CODE).await;
    rig.core.deploy_as("usr_2", "four", &[("worker/index.js", CODE.as_bytes())]);
    rig.observes("four", State::Serving).await;
    rig.node.visitor.sees(FOUR, "/", 204, "").await;
    let four = rig.process_id(FOUR).await;
    let three = format!("const ballast = new Uint8Array(40 << 20).fill(1);{CODE}");
    rig.starts("three", &three).await;
    let (_, mut app) = rig.fill(HOST).await;
    let (id, mut two) = rig.fill(TWO).await;
    rig.stops_to_free_memory(1).await;
    rig.uses(260).await;
    for _ in 0..3 {
        assert_no_memory(&rig.node.visitor.get(THREE, "/").await);
    }

    // The same files as before, for another owner.
    rig.core.deploy_as("usr_3", "three", &[("worker/index.js", three.as_bytes())]);
    rig.starts_when_memory_is_free(THREE).await;
    rig.stops_to_free_memory(2).await;
    while app.next().await.is_some_and(|chunk| chunk.is_ok()) {}
    assert_eq!(two.next().await.unwrap().unwrap(), id.as_bytes(), "the worker with the newer request was stopped");
    assert_eq!(rig.process_id(FOUR).await, four, "the worker of an owner within its share was stopped");
    // The owner uses the memory that is free.
    rig.starts_when_memory_is_free(HOST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control_group_limits_the_memory_of_busy_workers() {
    // The limit of the control group is 64 MiB higher.
    let Some(rig) = rig(64).await else { return };
    if !is_shown(&metrics(rig.node.metrics.unwrap()).await, Protection::Cgroup) {
        return eprintln!("SKIPPED: no control groups");
    }
    rig.starts("app", CODE).await;
    assert_eq!(rig.node.visitor.get(HOST, "/fill").await.status, 502);
    let crashed = rig.observes("app", State::Crashed).await;
    // The worker did not exceed its own limit.
    assert!(crashed.message.as_ref().is_some_and(|message| !message.contains("MiB of memory")), "{crashed:?}");
    rig.node.visitor.sees(HOST, "/", 204, "").await;
}

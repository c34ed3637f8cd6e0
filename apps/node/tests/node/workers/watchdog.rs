//! The watchdog, and its effect on other projects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::control_plane::State;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{HOST, Rig};

const MISBEHAVING: &str = r#"
  export default { async fetch(request) {
    if (request.url.endsWith("/loop")) for (;;) {}
    if (request.url.endsWith("/hog")) { const hoard = []; for (;;) hoard.push(new Uint8Array(1 << 20).fill(1)); }
    const objects = () => new Array(1 << 16).fill(0.5);
    if (request.url.endsWith("/heap")) { const hoard = []; for (;;) hoard.push(objects()); }
    if (request.url.endsWith("/output")) console.log("x".repeat(14 << 20));
    if (request.url.endsWith("/garbage")) [objects(), objects(), objects(), objects()];
    return new Response("fine");
  } };"#;

/// Sends requests to another project until `stop`. Returns the response times.
fn neighbour(rig: &Arc<Rig>, stop: &Arc<AtomicBool>) -> JoinHandle<Vec<Duration>> {
    let (rig, stop) = (Arc::clone(rig), Arc::clone(stop));
    tokio::spawn(async move {
        let mut took = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            let seen = rig.node.visitor.get("neighbour.localhost", "/").await;
            assert_eq!((seen.status, seen.body.as_str()), (200, "fine"));
            took.push(began.elapsed());
            sleep(Duration::from_millis(2)).await;
        }
        took
    })
}

fn figures(mut took: Vec<Duration>) -> String {
    took.sort();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    format!("{} requests, p50 {:?}, p99 {:?}, longest {:?}", took.len(), at(50), at(99), at(100))
}

async fn assert_stopped(path: &str, reason: &str) {
    let Some(rig) = Rig::start().await else { return };
    rig.serves(MISBEHAVING).await;
    rig.core.deploy("neighbour", &[("worker/index.js", MISBEHAVING.as_bytes())]);
    rig.observes("neighbour", State::Serving).await;
    let rig = Arc::new(rig);
    let measured = async |during: &str, task: JoinHandle<()>| {
        let stop = Arc::new(AtomicBool::new(false));
        let asking = neighbour(&rig, &stop);
        task.await.unwrap();
        stop.store(true, Ordering::Relaxed);
        println!("neighbour {during}: {}", figures(asking.await.unwrap()));
    };
    measured("before", tokio::spawn(sleep(Duration::from_secs(1)))).await;
    let misbehaving = {
        let (rig, path, reason) = (Arc::clone(&rig), path.to_owned(), reason.to_owned());
        tokio::spawn(async move {
            let began = Instant::now();
            let seen = rig.node.visitor.get(HOST, &path).await;
            println!("{path} was stopped after {:?}", began.elapsed());
            assert_eq!(seen.status, 502, "{seen:?}");
            let crashed = rig.observes("app", State::Crashed).await;
            assert!(crashed.message.as_ref().is_some_and(|it| it.contains(&reason)), "{crashed:?}");
        })
    };
    measured(&format!("during {path}"), misbehaving).await;
    measured("after", tokio::spawn(sleep(Duration::from_secs(1)))).await;
    rig.node.visitor.sees(HOST, "/", 200, "fine").await;
    rig.observes("app", State::Serving).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_loop_is_stopped_without_affecting_other_projects() {
    assert_stopped("/loop", "2 seconds").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_above_the_memory_limit_is_stopped_without_affecting_other_projects() {
    assert_stopped("/hog", "256 MiB of memory").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_that_fills_the_heap_is_stopped_without_affecting_other_projects() {
    assert_stopped("/heap", "128 MiB of memory for JavaScript objects").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_collected_before_the_worker_exceeds_its_memory() {
    let Some(rig) = Rig::start().await else { return };
    rig.serves(MISBEHAVING).await;
    // Each request leaves 2 MiB of objects.
    for _ in 0..400 {
        rig.node.visitor.sees(HOST, "/garbage", 200, "fine").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_that_waits_because_of_its_output_is_not_stopped() {
    let Some(rig) = Rig::start().await else { return };
    rig.serves(MISBEHAVING).await;
    // The process waits for longer than two seconds.
    let seen = rig.node.visitor.get(HOST, "/output").await;
    assert_eq!((seen.status, seen.body.as_str()), (200, "fine"));
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_is_reported_after_the_crash_despite_requests_during_the_exit() {
    let Some(rig) = Rig::start().await else { return };
    rig.serves(MISBEHAVING).await;
    // These requests fail when the process exits, and are repeated immediately.
    let repeated = async {
        loop {
            rig.node.visitor.get(HOST, "/").await;
        }
    };
    let restarted = async {
        assert_eq!(rig.node.visitor.get(HOST, "/loop").await.status, 502);
        rig.observes("app", State::Crashed).await;
        rig.observes("app", State::Serving).await;
    };
    tokio::select! {
        () = repeated => {}
        () = restarted => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn crashing_worker_is_restarted_with_backoff() {
    let Some(rig) = Rig::start_with(|workers| workers.memory = 30 << 20).await else { return };
    // The limit is less than the memory that `workerd` itself needs.
    rig.deploy("export default { fetch() { return new Response('never for long'); } };");
    let mut backoffs = 0;
    for _ in 0..3 {
        rig.observes("app", State::Crashed).await;
        loop {
            let seen = rig.node.visitor.get(HOST, "/").await;
            if seen.status == 503 && !seen.header("retry-after").is_empty() {
                backoffs += 1;
            } else if seen.status != 503 {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
    assert!(backoffs > 0);
}

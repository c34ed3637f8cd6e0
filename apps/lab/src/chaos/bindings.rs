//! Faults of the object store, and `kill -9` of the node, while a worker stores objects.
//!
//! Writers send objects through the worker and keep a journal. Afterwards, each acknowledged object must have its exact
//! content, every other object must be absent or complete, and the reported usage must be the sum of all sizes.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use chaos::{NetworkFault, Proxy, Upstream, run_clients};
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;
use xtask::postgres::Cluster;
use xtask::services::Services;
use xtask::workerd;

use super::Outcome;
use super::report::Finding;
use crate::bench::bindings::S3;
use crate::bench::machine::with_services;
use crate::bench::platform::{Platform, Settings};
use crate::bench::server::SEALING_KEY;
use crate::random;

/// A worker. PUT stores the body. GET returns an object, or the sum of all sizes. If the storage fails, the response
/// contains the error's code.
const WORKER: &[u8] = b"
export default {
  async fetch(request, env) {
    const key = new URL(request.url).pathname.slice(1);
    try {
      if (request.method === 'PUT') {
        await env.storage.put(key, request.body);
        return new Response(null, { status: 204 });
      }
      if (key === 'size') return new Response(String(await size(env.storage)));
      const object = await env.storage.get(key);
      return object ? new Response(object.body) : new Response(null, { status: 404 });
    } catch (error) {
      return new Response(error.code ?? String(error), { status: 500 });
    }
  },
};

async function size(storage) {
  let sum = 0, cursor;
  do {
    const page = await storage.list({ cursor });
    for (const object of page.objects) sum += object.size;
    cursor = page.cursor ?? undefined;
  } while (cursor);
  return sum;
}
";

const WRITERS: usize = 8;
const KILLS_PER_ROUND: usize = 4;
/// The longest request that the specification permits, plus a margin for the worker and the client.
const MAX_WAIT: Duration = Duration::from_secs(31);
/// The duration of each fault of the store.
const FAULT: Duration = Duration::from_secs(35);

/// The faults of the store: each lasts longer than the limit of a request.
const FAULTS: [NetworkFault; 3] =
    [NetworkFault::Disconnect, NetworkFault::Blackhole, NetworkFault::Delay(Duration::from_millis(500))];

/// An object that a writer sent.
struct Sent {
    key: String,
    /// The number of lines of the object's content.
    lines: usize,
    acknowledged: bool,
}

impl Sent {
    /// Returns the object with this number of a writer. Most objects are small; some are larger than a part of an
    /// upload.
    fn new(writer: usize, number: usize) -> Self {
        let lines = if number % 50 == 49 { 500_000 } else { 1 + number % 7 * 500 };
        Self { key: format!("{writer}/{number}"), lines, acknowledged: false }
    }

    fn content(&self) -> Vec<u8> {
        format!("object {}\n", self.key).into_bytes().repeat(self.lines)
    }
}

/// The requests of all writers.
#[derive(Default)]
struct Requests {
    stopped: AtomicBool,
    /// Whether the node may be down.
    is_node_down: AtomicBool,
    acknowledged: AtomicUsize,
    /// Errors with the code `storage_unavailable`.
    unavailable: AtomicUsize,
    /// Requests while the node was down.
    unreachable: AtomicUsize,
}

impl Requests {
    /// Returns the number of calls that ended with a result of the storage.
    fn responses(&self) -> usize {
        self.acknowledged.load(Ordering::SeqCst) + self.unavailable.load(Ordering::SeqCst)
    }
}

pub async fn run(rounds: usize) -> Result<Outcome> {
    let Some(workerd) = workerd::find() else {
        return Ok(Outcome { skipped: vec!["objects of workers (no workerd)".to_owned()], ..Outcome::default() });
    };
    with_services(async |services, folder| {
        let s3 = S3::start(folder).await?;
        let proxy = Proxy::start(Upstream::Tcp(s3.0.address())).await?;
        let mut node = s3.settings(proxy.address());
        node.push(("SVC_NODE_WORKERD", workerd.display().to_string()));
        node.push(("SVC_NODE_STORAGE_REPORT_INTERVAL", "1s".to_owned()));
        let (cluster, settings) = (Cluster::bench()?, Settings { node, ..Settings::default() });
        let url = cluster.url("postgres");
        let platform = Platform::start_on(services, folder, cluster, settings).await?;
        let mut outcome = measure(&platform, services, &proxy, rounds).await?;
        outcome.violations.extend(chaos::violations(&url, &[SEALING_KEY]).await?);
        Ok(outcome)
    })
    .await
}

async fn measure(platform: &Platform, services: &mut Services, proxy: &Proxy, rounds: usize) -> Result<Outcome> {
    let project = platform.create_project("objects").await?;
    platform.send(Method::POST, "objects/storage", &json!(null)).await?;
    project.deploy(&[("worker/index.js", WORKER)]).await?;
    project.wait_until_served("/size").await?;
    let host = project.hostname;
    let client = Client::builder().no_proxy().build()?;
    let edge = format!("http://{}", platform.edge);
    let requests = Requests::default();
    let writers = (0..WRITERS).map(|number| write(&client, &edge, &host, number, &requests));
    let faults = async {
        for fault in FAULTS {
            let ended = || match fault {
                NetworkFault::Delay(_) => requests.responses(),
                _ => requests.unavailable.load(Ordering::SeqCst),
            };
            let before = ended();
            proxy.set_fault(fault);
            sleep(FAULT).await;
            ensure!(ended() > before, "no call ended as expected during {fault:?}");
            proxy.set_fault(NetworkFault::None);
            sleep(Duration::from_secs(2)).await;
        }
        for _ in 0..KILLS_PER_ROUND * rounds {
            sleep(random::millis(1000..2000)).await;
            requests.is_node_down.store(true, Ordering::SeqCst);
            platform.node.kill_and_restart(services).await?;
            // The writers may not have received the errors of the kill yet.
            sleep(Duration::from_millis(200)).await;
            requests.is_node_down.store(false, Ordering::SeqCst);
        }
        sleep(Duration::from_secs(2)).await;
        anyhow::Ok(())
    };
    let (written, ()) = run_clients(join_all(writers), &requests.stopped, faults).await?;
    let mut outcome = Outcome::default();
    let (mut sent, mut longest) = (Vec::new(), Duration::ZERO);
    for writer in written {
        let (objects, wait, unexpected) = writer?;
        sent.extend(objects);
        longest = longest.max(wait);
        outcome.violations.extend(unexpected);
    }
    let unexpected = outcome.violations.len();
    let partial = check(&client, &edge, &host, &sent, &mut outcome).await?;
    let lost = outcome.violations.len() - unexpected;
    let (stored, reported) = sizes(platform, &client, &edge, &host).await?;
    outcome.findings.push(Finding::new(
        "the object store is down, hangs or is slow, and kill -9 of the node, while workers store objects",
        "every request ends within 30 s, with an object or the code storage_unavailable; no acknowledged object lost, \
         none partial; the usage is exact",
        unexpected == 0 && lost == 0 && longest <= MAX_WAIT && stored == reported,
        format!(
            "{} objects acknowledged, {lost} lost, changed or partial; {} calls with storage_unavailable, {} while the \
             node was down, {unexpected} with another error; {partial} unacknowledged objects are complete, the others absent; longest request {:.1} s; \
             {stored} bytes stored, {reported} reported",
            requests.acknowledged.load(Ordering::SeqCst),
            requests.unavailable.load(Ordering::SeqCst),
            requests.unreachable.load(Ordering::SeqCst),
            longest.as_secs_f64(),
        ),
    ));
    Ok(outcome)
}

/// Writes objects until stopped. Returns the objects, the duration of the longest request, and the unexpected
/// responses.
async fn write(
    client: &Client,
    edge: &str,
    host: &str,
    writer: usize,
    requests: &Requests,
) -> Result<(Vec<Sent>, Duration, Vec<String>)> {
    let (mut sent, mut longest, mut unexpected) = (Vec::new(), Duration::ZERO, Vec::new());
    while !requests.stopped.load(Ordering::SeqCst) {
        let mut object = Sent::new(writer, sent.len());
        let request = client.put(format!("{edge}/{}", object.key)).header("Host", host).body(object.content());
        let (start, was_down) = (Instant::now(), requests.is_node_down.load(Ordering::SeqCst));
        let response = request.timeout(MAX_WAIT * 2).send().await;
        longest = longest.max(start.elapsed());
        match response {
            Ok(response) if response.status() == StatusCode::NO_CONTENT => object.acknowledged = true,
            Ok(response) if response.status() == StatusCode::INTERNAL_SERVER_ERROR => {
                let code = response.text().await.unwrap_or_default();
                if code == "storage_unavailable" {
                    requests.unavailable.fetch_add(1, Ordering::SeqCst);
                } else {
                    unexpected.push(format!("{}: {code}", object.key));
                }
            }
            // The node was stopped or is starting.
            _ if was_down || requests.is_node_down.load(Ordering::SeqCst) => {
                requests.unreachable.fetch_add(1, Ordering::SeqCst);
                sleep(Duration::from_millis(20)).await;
            }
            Ok(response) => unexpected.push(format!("{}: {}", object.key, response.status())),
            Err(error) => unexpected.push(format!("{}: {error}", object.key)),
        }
        requests.acknowledged.fetch_add(usize::from(object.acknowledged), Ordering::SeqCst);
        sent.push(object);
    }
    Ok((sent, longest, unexpected))
}

/// Reads all objects. Returns the number of unacknowledged objects that exist.
async fn check(client: &Client, edge: &str, host: &str, sent: &[Sent], outcome: &mut Outcome) -> Result<usize> {
    let read = stream::iter(sent).map(async |object| {
        let response = client.get(format!("{edge}/{}", object.key)).header("Host", host).send().await?;
        anyhow::Ok((object, response.status(), response.bytes().await?))
    });
    let mut read = pin!(read.buffer_unordered(WRITERS));
    let mut complete = 0;
    while let Some((object, status, body)) = read.next().await.transpose()? {
        match status {
            StatusCode::OK if body == object.content() => complete += usize::from(!object.acknowledged),
            StatusCode::NOT_FOUND if !object.acknowledged => {}
            _ => outcome.violations.push(format!("the object {} is {status} with {} bytes", object.key, body.len())),
        }
    }
    Ok(complete)
}

/// Returns the sum of all sizes at the node, and the usage that the node reported.
async fn sizes(platform: &Platform, client: &Client, edge: &str, host: &str) -> Result<(u64, u64)> {
    let response = client.get(format!("{edge}/size")).header("Host", host).send().await?;
    let stored: u64 = response.text().await?.parse()?;
    let mut reported = 0;
    for _ in 0..100 {
        let status: Value = platform.read("objects/storage").await?;
        reported = status.get("usedBytes").and_then(Value::as_u64).context("no usedBytes")?;
        if reported == stored {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    ensure!(stored > 0, "no object was stored");
    Ok((stored, reported))
}

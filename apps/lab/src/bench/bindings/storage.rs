//! `env.storage.get` through a worker, compared with the same object as an asset and directly from the S3 server.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use object_store::ObjectStoreExt as _;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path as ObjectPath;
use object_store::signer::Signer as _;
use reqwest::Method;
use sandbox::S3Server;
use serde_json::json;

use crate::bench::edge::page;
use crate::bench::platform::Platform;
use crate::bench::report::Report;
use crate::bench::run::Run;
use crate::bench::wrk::Load;

/// The number of runs per side, alternating.
const ROUNDS: usize = 3;

const BUCKET: &str = "objects";

/// The worker stores a page at the first request to `/fill`, and returns the object for other requests.
const WORKER: &[u8] = b"
export default {
  async fetch(request, env) {
    if (new URL(request.url).pathname === '/fill') {
      const asset = await env.assets.fetch(new URL('/page.html', request.url));
      await env.storage.put('page', await asset.arrayBuffer(), { contentType: 'text/html' });
    }
    const object = await env.storage.get('page');
    return new Response(object?.body ?? 'no object', { status: object ? 200 : 404 });
  },
};
";

/// The store of the node, on an S3 server.
pub struct S3(pub S3Server);

impl S3 {
    /// Starts an S3 server with an empty bucket.
    pub async fn start(folder: &Path) -> Result<Self> {
        let folder = folder.join("s3");
        fs::create_dir_all(folder.join(BUCKET))?;
        Ok(Self(S3Server::start(&folder).await?))
    }

    /// Returns the settings of a node that reaches the server at this address.
    pub fn settings(&self, address: SocketAddr) -> Vec<(&'static str, String)> {
        vec![
            ("SVC_NODE_STORAGE", format!("s3://{BUCKET}")),
            ("SVC_NODE_STORAGE_ENDPOINT_URL", format!("http://{address}")),
            ("SVC_NODE_STORAGE_REGION", "us-east-1".to_owned()),
            ("SVC_NODE_STORAGE_ACCESS_KEY_ID", S3Server::ACCESS_KEY_ID.to_owned()),
            ("SVC_NODE_STORAGE_SECRET_ACCESS_KEY", S3Server::SECRET_ACCESS_KEY.to_owned()),
        ]
    }

    /// Stores the page, and returns a signed URL for it.
    async fn store_page(&self) -> Result<String> {
        let bucket = AmazonS3Builder::new()
            .with_bucket_name(BUCKET)
            .with_region("us-east-1")
            .with_endpoint(format!("http://{}", self.0.address()))
            .with_allow_http(true)
            .with_access_key_id(S3Server::ACCESS_KEY_ID)
            .with_secret_access_key(S3Server::SECRET_ACCESS_KEY)
            .build()?;
        let path = ObjectPath::from("direct/page");
        bucket.put(&path, page().into()).await?;
        Ok(bucket.signed_url(Method::GET, &path, Duration::from_secs(3600)).await?.to_string())
    }
}

/// Adds a row for the S3 server, for the asset, and for the worker.
pub async fn compare(report: &mut Report, platform: &Platform, s3: &S3, load: &Load<'_>) -> Result<()> {
    let project = platform.create_project("storage").await?;
    platform.send(Method::POST, "storage/storage", &json!(null)).await?;
    project.deploy(&[("assets/page.html", &page()), ("worker/index.js", WORKER)]).await?;
    project.wait_until_served("/fill").await?;
    let direct = s3.store_page().await?;
    let sides = [
        ("s3s-fs", direct, s3.0.address().to_string()),
        ("asset", format!("http://{}/page.html", platform.edge), project.hostname.clone()),
        ("env.storage", format!("http://{}/", platform.edge), project.hostname.clone()),
    ];
    for (name, url, host) in &sides {
        let response = platform.get(url, &[("Host", host.clone())]).await?;
        ensure!(response.status().is_success(), "{name} returned {}", response.status());
        ensure!(response.bytes().await? == page(), "{name} returned other content");
    }
    report.paragraph(&format!(
        "**Reads.** An object of 10 KiB: directly from the S3 server, as an asset of a site, and through a worker with \
         `env.storage.get`. {} connections kept alive, {ROUNDS} runs of {} s.",
        load.connections, load.seconds
    ))?;
    report.comparison_columns(&[])?;
    let mut runs: [Vec<Run>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for ((_, url, host), runs) in sides.iter().zip(&mut runs) {
            runs.push(load.run(url, &[("Host", host)]).await?);
        }
    }
    let rows: Vec<_> = sides.iter().zip(&runs).map(|((name, ..), runs)| (*name, runs.as_slice())).collect();
    report.comparison("get 10 KiB", &rows)
}

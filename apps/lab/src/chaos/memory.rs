//! The service's memory: idle, with 1,000 connections, and with additional hostile uploads.

use std::io::{self, Read, Write as _};
use std::time::Duration;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::future::try_join_all;
use kernel::ClockRng;
use reqwest::Client;
use tokio::time::sleep;

use super::Outcome;
use super::load::{self, Connection};
use super::report::Finding;
use super::rig::{RequestProbe, Rig};

const CONNECTIONS: usize = 1000;
const UPLOADS: usize = 8;

pub async fn run() -> Result<Outcome> {
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&[]).await?);
    // Restart, to exclude the memory of the writers' sign-ins.
    rig.service.kill().await?;
    rig.service.restart().await?;
    sleep(Duration::from_secs(3)).await;
    let (idle, _) = rig.service.memory()?;
    let no_op = RequestProbe::no_op(rig.service.api);
    let request = rig.request("GET", "/v1/me", "")?;
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = Connection::connect(rig.service.api).await?;
        connection.request(&request).await?;
        connections.push(connection);
    }
    let (connected, _) = rig.service.memory()?;
    let (mut statuses, mut unexpected) = (Vec::new(), 0);
    for (bundle, expected) in [(bomb()?, 201), (many_files()?, 201), (incompressible()?, 201), (deep_paths()?, 400)] {
        let received = upload(&rig, &bundle).await?;
        unexpected += received.iter().filter(|status| **status != expected).count();
        statuses.extend(received);
    }
    let (_, peak) = rig.service.memory()?;
    drop(connections);
    let samples = no_op.stop().await?;
    rig.verify(&mut outcome).await?;
    statuses.sort_unstable();
    statuses.dedup();
    outcome.findings.push(Finding::new(
        "memory",
        "at most 60 MB idle, 256 MB with 1,000 connections, 8 uploads and hostile bundles",
        idle <= 60.0 && peak <= 256.0 && unexpected == 0,
        format!(
            "{idle:.0} MB idle, {connected:.0} MB with {CONNECTIONS} connections, at most {peak:.0} MB with {UPLOADS} \
             concurrent uploads each of a decompression bomb, 20,000 files, 45 MB of incompressible data, and very \
             long paths (statuses {statuses:?}, {unexpected} unexpected); no-op {:.1} ms",
            load::percentile(&samples, 99, |_| true)
        ),
    ));
    rig.stop().await?;
    Ok(outcome)
}

async fn upload(rig: &Rig, bundle: &[u8]) -> Result<Vec<u16>> {
    let client = Client::builder().no_proxy().build()?;
    let uploads = (0..UPLOADS).map(async |number| {
        let (token, org) = rig.caller(number)?;
        let path = format!("{}/v1/orgs/{org}/projects/site/deployments", rig.service.base());
        let sent =
            client.post(path).bearer_auth(token).header("content-type", "application/gzip").body(bundle.to_vec());
        // The status is 0 without a response.
        Ok::<_, anyhow::Error>(sent.send().await.map_or(0, |response| response.status().as_u16()))
    });
    try_join_all(uploads).await
}

/// Builds a bundle of files with these paths and sizes, filled from `content`.
fn bundle(files: impl Iterator<Item = (String, u64)>, content: impl Fn() -> Box<dyn Read>) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let manifest = [("svc.json".to_owned(), 2)];
    for (path, size) in manifest.into_iter().chain(files) {
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(0o644);
        let data: Box<dyn Read> = if path == "svc.json" { Box::new(&b"{}"[..]) } else { content() };
        archive.append_data(&mut header, path, data.take(size))?;
    }
    Ok(archive.into_inner()?.finish()?)
}

fn zeros() -> Box<dyn Read> {
    Box::new(io::repeat(0))
}

/// Builds a decompression bomb: 245 MB from 0.25 MB.
fn bomb() -> Result<Vec<u8>> {
    bundle([("assets/index.html".to_owned(), 245_000_000)].into_iter(), zeros)
}

/// Builds a bundle with almost the maximum number of files. Their paths have 1.55 MB of the permitted 2 MiB.
fn many_files() -> Result<Vec<u8>> {
    bundle((0..19_900).map(|number| (format!("assets/{number:05}/{number:060}.html"), 1)), zeros)
}

/// Builds an upload of the maximum size that does not compress.
fn incompressible() -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    let block: Vec<u8> = (0..32 * 1024).flat_map(|_| ClockRng::system().bytes::<32>()).collect();
    let mut archive = tar::Builder::new(Vec::new());
    for (path, data) in [("svc.json", &b"{}"[..]), ("assets/a.bin", &block.repeat(45))] {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, data)?;
    }
    encoder.write_all(&archive.into_inner()?)?;
    Ok(encoder.finish()?)
}

/// Builds a bundle with paths of 60,000 characters.
fn deep_paths() -> Result<Vec<u8>> {
    bundle((0..200).map(|number| (format!("assets/{}{number}", "d/".repeat(30_000)), 1)), zeros)
}

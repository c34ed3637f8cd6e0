//! What the service occupies: idle, with a thousand connections, and with hostile uploads beside them.

use std::io::{self, Read, Write as _};
use std::time::Duration;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::future::try_join_all;
use kernel::World;
use reqwest::Client;
use tokio::time::sleep;

use super::Outcome;
use super::report::Finding;
use super::rig::{Rig, Watch};
use super::wire::{self, Wire};

const CONNECTIONS: usize = 1000;
const UPLOADS: usize = 8;

pub async fn run() -> Result<Outcome> {
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&[]).await?);
    // Without what its start and the writers' sign-ins left behind.
    rig.service.kill().await?;
    rig.service.start_again().await?;
    sleep(Duration::from_secs(3)).await;
    let (idle, _) = rig.service.memory()?;
    let no_op = Watch::no_op(rig.service.api);
    let request = rig.request("GET", "/v1/me", "")?;
    let mut wires = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut wire = Wire::connect(rig.service.api).await?;
        wire.ask(&request).await?;
        wires.push(wire);
    }
    let (connected, _) = rig.service.memory()?;
    let mut answers = Vec::new();
    for bundle in [bomb()?, crowd()?, noise()?, depths()?] {
        answers.extend(upload(&rig, &bundle).await?);
    }
    let (_, most) = rig.service.memory()?;
    drop(wires);
    let shots = no_op.end().await?;
    rig.look(&mut outcome).await?;
    answers.sort_unstable();
    answers.dedup();
    outcome.findings.push(Finding::new(
        "memory",
        "at most 60 MB idle, 256 MB with 1,000 connections, 8 uploads and hostile bundles",
        idle <= 60.0 && most <= 256.0 && answers.iter().all(|status| *status < 500),
        format!(
            "{idle:.0} MB idle, {connected:.0} MB with {CONNECTIONS} connections, at most {most:.0} MB with {UPLOADS} uploads at a time of a bomb, \
             20,000 files, 45 MB that do not compress, and paths without end (answered {answers:?}); no-op {:.1} ms",
            wire::quantile(&shots, 99, |_| true)
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
        // One that is refused early may not be read to its end.
        Ok::<_, anyhow::Error>(sent.send().await.map_or(0, |answer| answer.status().as_u16()))
    });
    try_join_all(uploads).await
}

/// A bundle of these files, each so long, of what `content` gives.
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

/// 245 MB out of a quarter of one.
fn bomb() -> Result<Vec<u8>> {
    bundle([("assets/index.html".to_owned(), 245_000_000)].into_iter(), zeros)
}

/// As many files as there may be.
fn crowd() -> Result<Vec<u8>> {
    bundle((0..19_900).map(|number| (format!("assets/{number:060}/{number:060}.html"), 1)), zeros)
}

/// As much as may be uploaded, which does not compress.
fn noise() -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    let block: Vec<u8> = (0..32 * 1024).flat_map(|_| World::system().bytes::<32>()).collect();
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

/// Paths of 60,000 letters.
fn depths() -> Result<Vec<u8>> {
    bundle((0..200).map(|number| (format!("assets/{}{number}", "d/".repeat(30_000)), 1)), zeros)
}

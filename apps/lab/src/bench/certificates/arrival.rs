//! The time from a new certificate until a handshake presents it.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::Signal;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use tokio::time::sleep;

use super::authority::Leaf;
use super::client::{Client, Version, close};
use super::rig::Rig;
use super::target::Target;
use crate::bench::machine::send_signal;
use crate::bench::report::Report;
use crate::bench::run::percentiles;

/// The longest time until a handshake presents the certificate.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The operator's folder is read every 5 s, so it is measured less often.
const FILES_PART: usize = 4;
/// The name whose certificate is in the operator's folder.
const OWN_NAME: &str = "operator.example";

/// Adds a row for each way in which a certificate arrives.
pub async fn measure(rig: &Rig, report: &mut Report, targets: [&Target; 3], renewals: usize) -> Result<()> {
    let [blocks, variable, node] = targets;
    report.paragraph(
        "**Renewals.** From the commit, or from the write of the file, until a handshake presents the new certificate. \
         The other certificates stay.",
    )?;
    report.columns(&["a certificate arrives", "program", "renewals", "p50 ms", "max ms"])?;
    let mut rows = [(); 4].map(|()| Vec::new());
    for number in 0..renewals {
        let (project, name) = rig.random_name()?;
        let leaf = rig.authority.issue(&name)?;
        let [desired, own, reload, read] = &mut rows;
        rig.publisher.publish(&project, &[(name.as_str(), &leaf)]).await?;
        desired.push(wait(node, &name, &leaf).await?);
        if number % FILES_PART == 0 {
            let leaf = rig.authority.issue(OWN_NAME)?;
            let (temporary, file) = (rig.files.join("new"), rig.files.join(format!("{OWN_NAME}.pem")));
            fs::write(&temporary, leaf.pem())?;
            fs::rename(temporary, file)?;
            own.push(wait(node, OWN_NAME, &leaf).await?);
        }
        rig.nginx.write(&name, &leaf)?;
        read.push(wait(variable, &name, &leaf).await?);
        send_signal(blocks.process, Signal::HUP)?;
        reload.push(wait(blocks, &name, &leaf).await?);
    }
    let [desired, own, reload, read] = rows;
    for (what, target, durations) in [
        ("in the desired state", node, desired),
        ("in the operator's folder, which is read every 5 s", node, own),
        ("in a file, with a reload", blocks, reload),
        ("in a file, which is read at each handshake", variable, read),
    ] {
        add(report, what, target, durations)?;
    }
    Ok(())
}

/// Waits until a server presents the certificate for its name. Returns the duration.
async fn wait(target: &Target, name: &str, leaf: &Leaf) -> Result<Duration> {
    let start = Instant::now();
    let expected = Arc::new(HashMap::from([(name.to_owned(), leaf.der.clone())]));
    let client = Client::new(target.address, &expected, Version::Tls13, "http/1.1", Resumption::disabled())?;
    let name = ServerName::try_from(name.to_owned())?;
    loop {
        if let Ok(stream) = client.connect(&name).await {
            let duration = start.elapsed();
            close(stream).await;
            return Ok(duration);
        }
        ensure!(start.elapsed() < TIMEOUT, "{} does not present the new certificate", target.name);
        sleep(Duration::from_millis(1)).await;
    }
}

fn add(report: &mut Report, what: &str, target: &Target, durations: Vec<Duration>) -> Result<()> {
    let durations: Vec<f64> = durations.iter().map(|duration| duration.as_secs_f64() * 1000.0).collect();
    let count = durations.len().to_string();
    let [p50, max] = percentiles(durations, [50, 100]).map(|ms| format!("{ms:.1}"));
    report.row(&[what, target.name, &count, &p50, &max])
}

//! `bench mail`: the mail node compared with Debian's Postfix on this machine, from a release build.

mod control_plane;
mod postfix;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::sleep;
use xtask::services::Services;

use super::machine::{find_installed, with_release_build};
use super::report::Report;
use super::run::percentiles;
use crate::mail_host::{MailHost, MailNode};
use crate::usage;
use control_plane::ControlPlane;
use postfix::Postfix;

const TITLE: &str = "Mail";
const ABOUT: &str = "\
Written by `cargo xtask bench mail`. The mail node and Debian's Postfix get the same mails from `smtp-source`, a client
of Postfix, and store them on the same disk. The mail node also checks SPF.";

/// The size of a mail, in bytes.
const MAIL_BYTES: usize = 10 * 1024;
/// The longest time until a queue is empty.
const MAX_DRAIN: Duration = Duration::from_secs(300);

#[derive(clap::Args, PartialEq)]
pub struct Args {
    /// The number of mails of a run
    #[arg(long, default_value_t = 5000)]
    mails: usize,
    /// The number of concurrent clients
    #[arg(long, default_value_t = 50)]
    clients: usize,
    /// The number of runs; one more is not measured
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The number of open connections whose memory is measured; 0 skips this part
    #[arg(long, default_value_t = 500)]
    connections: usize,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    with_release_build(async |services, folder| measure(services, folder, &args).await).await
}

async fn measure(services: &mut Services, folder: &Path, args: &Args) -> Result<()> {
    let source =
        Source { program: find_installed("smtp-source", "postfix")?, mails: args.mails, clients: args.clients };
    let postfix = Postfix::start(services, folder).await?;
    let mut report = Report::new(TITLE, ABOUT, &[postfix::version()?])?;
    report.paragraph(&format!(
        "**Mails.** {} mails of {} KiB from {} concurrent clients, in {} runs. Accepted: each mail stays in the \
         queue. Postfix holds it, and the control plane of the mail node, which the benchmark simulates, refuses it. \
         Sent through: a run ends when the queue is empty. Postfix relays to `smtp-sink`, which stores nothing, and \
         the mail node hands over to a server with Postgres.",
        args.mails,
        MAIL_BYTES / 1024,
        args.clients,
        args.rounds
    ))?;
    report.columns(&["measurement", "program", "mails per second", "ratio"])?;
    accept(&mut report, services, folder, &source, &postfix, args.rounds).await?;
    let relay = format!("smtp://{}", postfix.sink);
    let host = MailHost::start(services, folder, &relay, Vec::new()).await?;
    send_through(&mut report, &host, &source, &postfix, args.rounds).await?;
    if args.connections > 0 {
        let memory = [
            memory(postfix.address, args.connections, || postfix.memory()).await?,
            memory(host.node.smtp, args.connections, || usage::proportional_memory(host.node.program.pid())).await?,
        ];
        report.paragraph("**Memory.** The proportional set size of all processes, in MB.")?;
        report.columns(&["program", "idle", &format!("{} connections", args.connections)])?;
        for (name, [idle, open]) in ["Postfix", "svc-mail"].into_iter().zip(memory) {
            report.row(&[name, &format!("{idle:.1}"), &format!("{open:.1}")])?;
        }
    }
    report.finish(args)
}

/// Adds the rates at which both accept mails: over a new connection for each mail, and over one for many mails.
async fn accept(
    report: &mut Report,
    services: &mut Services,
    folder: &Path,
    source: &Source,
    postfix: &Postfix,
    rounds: usize,
) -> Result<()> {
    let (control_plane, token) = (ControlPlane::start().await?, folder.join("accept.token"));
    std::fs::write(&token, "svc_nod_of-the-benchmark")?;
    let node = MailNode::start(services, folder, control_plane.url(), &token).await?;
    let mut number = 0;
    for (what, reuse) in
        [("accepted, a connection for each mail", false), ("accepted, a connection for many mails", true)]
    {
        let mut rates = [Vec::new(), Vec::new()];
        for round in 0..=rounds {
            number += 1;
            let held = source.send(postfix.address, postfix::HELD, reuse).await?;
            // Each run has its own project, because the mail node limits the waiting mail of a project.
            let accepted = source.send(node.smtp, &format!("box@project-{number}.localhost"), reuse).await?;
            if round > 0 {
                rates[0].push(source.rate(held));
                rates[1].push(source.rate(accepted));
            }
        }
        add(report, what, rates)?;
    }
    let queued = node.queued()?;
    let expected = 2 * (rounds + 1) * source.mails;
    ensure!(queued == expected && postfix.held()? == expected, "not all mails are in the queues");
    node.stop(services).await
}

/// Adds the rates at which mails pass through both.
async fn send_through(
    report: &mut Report,
    host: &MailHost,
    source: &Source,
    postfix: &Postfix,
    rounds: usize,
) -> Result<()> {
    let domain = host.create("box").await?;
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        let relayed = source.send(postfix.address, postfix::RELAYED, true).await?;
        let relayed = relayed + wait_until_empty(|| postfix.queued()).await?;
        let received = source.send(host.node.smtp, &format!("box@{domain}"), true).await?;
        let received = received + wait_until_empty(|| host.node.queued()).await?;
        if round > 0 {
            rates[0].push(source.rate(relayed));
            rates[1].push(source.rate(received));
        }
    }
    add(report, "sent through, a connection for many mails", rates)?;
    let stored = chaos::rows(&host.database, "SELECT count(*) FROM mail.messages").await?;
    let expected = (rounds + 1) * source.mails;
    ensure!(stored == [serde_json::json!({ "count": expected })], "not all mails are in the log: {stored:?}");
    Ok(())
}

fn add(report: &mut Report, what: &str, rates: [Vec<f64>; 2]) -> Result<()> {
    let [[postfix], [node]] = rates.map(|rates| percentiles(rates, [50]));
    report.row(&[what, "Postfix", &format!("{postfix:.0}"), "1.00"])?;
    report.row(&["", "svc-mail", &format!("{node:.0}"), &format!("{:.2}", node / postfix)])
}

async fn wait_until_empty(queued: impl Fn() -> Result<usize>) -> Result<Duration> {
    let start = Instant::now();
    while queued()? > 0 {
        ensure!(start.elapsed() < MAX_DRAIN, "the queue is not empty");
        sleep(Duration::from_millis(5)).await;
    }
    Ok(start.elapsed())
}

/// Returns the memory in MB before and after clients have connected and sent EHLO.
async fn memory(address: SocketAddr, connections: usize, memory: impl Fn() -> Result<f64>) -> Result<[f64; 2]> {
    let idle = memory()?;
    let mut open = Vec::new();
    for _ in 0..connections {
        let mut stream = BufReader::new(TcpStream::connect(address).await?);
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        stream.write_all(b"HELO localhost\r\n").await?;
        stream.read_line(&mut line).await?;
        ensure!(line.ends_with("\r\n") && line.contains("\r\n250 "), "a connection was refused: {line}");
        open.push(stream);
    }
    Ok([idle, memory()?])
}

/// The client.
struct Source {
    program: PathBuf,
    mails: usize,
    clients: usize,
}

impl Source {
    /// Sends the mails of a run. Returns the duration.
    async fn send(&self, address: SocketAddr, to: &str, reuse: bool) -> Result<Duration> {
        let mut command = Command::new(&self.program);
        command.args(["-s", &self.clients.to_string(), "-m", &self.mails.to_string(), "-l", &MAIL_BYTES.to_string()]);
        command.args(["-f", "ada@example.org", "-t", to]);
        if reuse {
            command.arg("-d");
        }
        let start = Instant::now();
        let status = command.arg(address.to_string()).kill_on_drop(true).status().await?;
        ensure!(status.success(), "smtp-source failed: {status}");
        Ok(start.elapsed())
    }

    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    fn rate(&self, duration: Duration) -> f64 {
        self.mails as f64 / duration.as_secs_f64()
    }
}

//! Handshakes with many names: full ones and resumed sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use tokio::task::JoinSet;

use super::client::{Client, Expected, Version, close, is_resumed};
use super::load::{self, Load, Operations};
use super::target::Target;
use crate::bench::report::Report;

/// The number of sessions for each name that the store of a client accounts for.
const SESSIONS_PER_NAME: usize = 8;

/// Adds a row for each kind of handshake and target. Every client visits all names in another order.
pub async fn compare(
    report: &mut Report,
    targets: &[&Target],
    (expected, names): (&Arc<Expected>, &[String]),
    load: Load,
) -> Result<()> {
    report.paragraph(
        "**Handshakes.** From the connection until the client can send a request, each time with another name. The \
         client compares the certificate with the one of the name, but verifies no signature.",
    )?;
    load::head(report)?;
    let names: Arc<[ServerName<'static>]> =
        names.iter().map(|name| ServerName::try_from(name.clone())).collect::<Result<_, _>>()?;
    let mut notes = Vec::new();
    for (label, version) in [("TLS 1.3", Version::Tls13), ("TLS 1.2", Version::Tls12)] {
        for (kind, resumes) in [("full", false), ("resumed", true)] {
            let mut clients = Vec::new();
            for target in targets {
                let resumption = match resumes {
                    true => Resumption::in_memory_sessions((names.len() + 1) * SESSIONS_PER_NAME),
                    false => Resumption::disabled(),
                };
                let client = Client::new(target.address, expected, version, "http/1.1", resumption)?;
                if resumes {
                    visit_all(&client, &names, load.clients).await?;
                }
                clients.push((client, Arc::<AtomicU64>::default()));
            }
            let operation = format!("{label}, {kind}");
            let connect = |target: usize, number, until| {
                let client = clients.get(target).cloned();
                perform(client, Arc::clone(&names), resumes, (number, until))
            };
            load::compare(report, &operation, targets, load, connect).await?;
            let others = clients.iter().map(|(_, others)| others.load(Ordering::Relaxed));
            for (target, others) in targets.iter().zip(others).filter(|(_, others)| *others > 0) {
                notes.push(format!("{others} handshakes with {} were not {kind} ({label}).", target.name));
            }
        }
    }
    notes.iter().try_for_each(|note| report.paragraph(note))
}

/// Opens a connection to every name, so that the client has a session of each.
async fn visit_all(client: &Client, names: &Arc<[ServerName<'static>]>, clients: usize) -> Result<()> {
    let mut visits = JoinSet::new();
    for number in 0..clients {
        let (client, names) = (client.clone(), Arc::clone(names));
        visits.spawn(async move {
            for name in names.iter().skip(number).step_by(clients) {
                close(client.connect(name).await?).await;
            }
            anyhow::Ok(())
        });
    }
    while let Some(visited) = visits.join_next().await {
        visited??;
    }
    Ok(())
}

/// Performs handshakes of one client until an instant. Counts those of the other kind.
async fn perform(
    client: Option<(Client, Arc<AtomicU64>)>,
    names: Arc<[ServerName<'static>]>,
    resumes: bool,
    (number, until): (usize, Instant),
) -> Result<Operations> {
    let (mut operations, (client, others)) = (Operations::default(), client.context("no client")?);
    for step in 0_usize.. {
        // Two primes: the clients begin at different names, and visit each name once in a round.
        let name = names.get((number * 7919 + step * 104_729) % names.len()).context("there are no names")?;
        let start = Instant::now();
        if start >= until {
            break;
        }
        let connected = client.connect(name).await;
        operations.add(start, connected.is_ok()).await;
        if let Ok(stream) = connected {
            if is_resumed(&stream) != resumes {
                others.fetch_add(1, Ordering::Relaxed);
            }
            close(stream).await;
        }
    }
    Ok(operations)
}

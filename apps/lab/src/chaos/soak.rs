//! A mixed workload on the whole platform, with a fault at an interval.
//!
//! The faults have a random order, which depends only on the seed. After the last fault, the workload continues without
//! faults: during this time, the memory and the descriptors of the programs must not grow. Finally the workload stops,
//! everything in progress ends, and the journals of the clients are compared with the stored results.

mod deploys;
mod faults;
mod growth;
mod journals;
mod pause;
mod pushes;
mod queries;
mod random;
mod restores;
mod rig;
mod workload;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use kernel::ClockRng;
use tokio::time::sleep;
use xtask::services::Services;
use xtask::workerd;

use super::Outcome;
use super::mail::check::MAX_IN_PROGRESS;
use super::report::Finding;
use crate::bench::machine::with_services;
use faults::Deck;
use growth::Growth;
use rig::{Nodes, Rig};
use workload::Workload;

#[derive(Clone, clap::Args, PartialEq)]
pub struct SoakArgs {
    /// The duration of the faults of `soak`, in minutes; a third of it follows without faults
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// The seconds between two faults of `soak`
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    fault_every: u64,
    /// The seed of the faults of `soak` [default: random]
    #[arg(long)]
    seed: Option<u64>,
}

impl SoakArgs {
    /// Returns the same options with a random seed.
    pub fn without_seed(&self) -> Self {
        Self { seed: None, ..self.clone() }
    }
}

/// The shortest time without faults.
const MIN_CALM: Duration = Duration::from_secs(60);

pub async fn run(args: &SoakArgs) -> Result<Outcome> {
    let Some(workerd) = workerd::find() else {
        return Ok(Outcome { skipped: vec!["the soak (no workerd)".to_owned()], ..Outcome::default() });
    };
    with_services(async |services, folder| measure(services, folder, &workerd, args).await).await
}

async fn measure(services: &mut Services, folder: &Path, workerd: &Path, args: &SoakArgs) -> Result<Outcome> {
    let seed = args.seed.unwrap_or_else(|| u64::from(u32::from_be_bytes(ClockRng::system().bytes())));
    println!("  seed {seed}: `--seed {seed}` repeats the faults");
    let (rig, mut nodes) = Rig::start(services, folder, workerd).await?;
    let workload = Workload::prepare(&rig, &nodes).await?;
    let mut faults = Faults::new(args, seed);
    let injected = faults.inject_and_measure(&rig, &mut nodes, services);
    let (mut journals, growth) = workload.run(&rig, injected).await?;
    let (mut outcome, start) = (Outcome::default(), Instant::now());
    journals.settle_and_verify(&rig, &mut nodes, faults.injected, faults.mail_repetitions, &mut outcome).await?;
    let settled_in = start.elapsed();
    let is_bounded = growth.iter().all(Growth::is_bounded);
    let programs: Vec<String> = growth.iter().map(Growth::to_string).collect();
    outcome.findings.push(Finding::new(
        "a mixed workload on the whole platform, with a random fault at an interval",
        "no acknowledged result lost, no invariant violated; without faults, no program's memory grows by more than 10 %, \
         and no descriptors leak",
        outcome.violations.is_empty() && is_bounded,
        format!(
            "{} minutes with a fault every {} s (seed {seed}), then {} without: {} faults; {}; {} violations; verified \
             within {:.0} s; in the second half without faults: {}",
            args.minutes,
            args.fault_every,
            minutes(faults.calm()),
            faults.injected,
            journals.summary(),
            outcome.violations.len(),
            settled_in.as_secs_f64(),
            programs.join(", "),
        ),
    ));
    Ok(outcome)
}

fn minutes(duration: Duration) -> String {
    format!("{:.0} minutes", duration.as_secs_f64() / 60.0)
}

/// The schedule of the faults.
struct Faults {
    deck: Deck,
    interval: Duration,
    duration: Duration,
    injected: usize,
    /// The maximum number of calls of `email()`, and of deliveries to the relay, that the faults can repeat.
    mail_repetitions: usize,
}

impl Faults {
    fn new(args: &SoakArgs, seed: u64) -> Self {
        let (interval, duration) = (Duration::from_secs(args.fault_every), Duration::from_secs(args.minutes * 60));
        Self { deck: Deck::new(seed), interval, duration, injected: 0, mail_repetitions: 0 }
    }

    /// Returns the time without faults.
    fn calm(&self) -> Duration {
        (self.duration / 3).max(MIN_CALM)
    }

    /// Injects all faults, and measures the programs afterwards.
    async fn inject_and_measure(
        &mut self,
        rig: &Rig,
        nodes: &mut Nodes,
        services: &mut Services,
    ) -> Result<Vec<Growth>> {
        let start = Instant::now();
        loop {
            let next = self.interval * (u32::try_from(self.injected)? + 1);
            if next > self.duration {
                break;
            }
            sleep(next.saturating_sub(start.elapsed())).await;
            let (fault, duration) = self.deck.draw()?;
            println!("  {:>5.0} s  {fault:?}, {:.1} s", start.elapsed().as_secs_f64(), duration.as_secs_f64());
            let received = rig.relay.received().len();
            faults::inject(fault, duration, rig, nodes, services).await?;
            self.injected += 1;
            if fault.repeats_mail() {
                // A relay that closes the connection after a mail receives each of these mails again.
                self.mail_repetitions += MAX_IN_PROGRESS + rig.relay.received().len() - received;
            }
        }
        growth::measure(rig, nodes, self.calm()).await
    }
}

//! `chaos`: the product is broken on purpose, and what it promises to survive is measured.

mod calls;
mod clients;
mod clock;
mod disk;
mod killed;
mod locked;
mod malformed;
mod memory;
mod overload;
mod postgres;
mod providers;
mod report;
mod rig;
mod schema;
mod service;
mod sign_in;
mod stopped;
mod wire;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use xtask::process::Signals;
use xtask::services::Services;
use xtask::workspace::step;

use crate::bench::machine;
use report::Outcome;

#[derive(clap::Args)]
pub struct Args {
    /// What is done to it; everything, if nothing is named. Everything also writes `docs/reliability.md`
    faults: Vec<Fault>,
    /// How often what is reported as a median is measured
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// What is done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// kill -9 at random, under load
    Killed,
    /// kill -9 in the middle of each kind of call to the outside
    Calls,
    /// Postgres cut off, restarted, recovering, and behind a hole
    Postgres,
    /// A locked organization, and a slow Postgres
    Locked,
    /// Five times the load that can be sustained
    Overload,
    /// A thousand connections, and eight hostile uploads
    Memory,
    /// Mail, code host and name server away, hanging, and answering HTML
    Providers,
    /// Two thousand slow clients
    Clients,
    /// SIGTERM under load
    Stopped,
    /// Ten thousand malformed requests
    Malformed,
    /// Full disks, where root
    Disk,
    /// The clock jumps
    Clock,
    /// The migrations on a million rows, with writes going on
    Schema,
}

pub async fn run(Args { faults, rounds }: Args) -> Result<ExitCode> {
    // The load generator must not be slower than the service.
    ensure!(!cfg!(debug_assertions), "this is a debug build: run `cargo xtask chaos`");
    let mut services = Services::new(Signals::listen()?);
    machine::build(&mut services).await?;
    // Thousands of connections, on both sides: the service inherits this.
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    let everything = faults.is_empty();
    let faults = if everything { Fault::value_variants().to_vec() } else { faults };
    let mut all = Outcome::default();
    for fault in faults {
        let start = Instant::now();
        let outcome = services.during(fault.run(rounds.max(1))).await?;
        step("Chaos", format_args!("{fault:?} done"), start);
        report::print(&outcome);
        all.findings.extend(outcome.findings);
        all.wrong.extend(outcome.wrong);
        all.left_out.extend(outcome.left_out);
    }
    services.stop().await;
    if everything {
        report::write(&all)?;
    }
    Ok(if all.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Fault {
    async fn run(self, rounds: usize) -> Result<Outcome> {
        match self {
            Self::Killed => killed::run(rounds).await,
            Self::Calls => calls::run().await,
            Self::Postgres => postgres::run(rounds).await,
            Self::Locked => locked::run(rounds).await,
            Self::Overload => overload::run(rounds).await,
            Self::Memory => memory::run().await,
            Self::Providers => providers::run().await,
            Self::Clients => clients::run().await,
            Self::Stopped => stopped::run(rounds).await,
            Self::Malformed => malformed::run().await,
            Self::Disk => disk::run().await,
            Self::Clock => clock::run().await,
            Self::Schema => schema::run().await,
        }
    }
}

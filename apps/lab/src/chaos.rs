//! `chaos`: injects faults and measures the reliability targets.

mod billing;
mod bindings;
mod certificates;
mod clock_jumps;
mod databases;
mod domains;
mod full_disk;
mod git;
mod kill;
mod kill_during_calls;
pub mod load;
mod locked_row;
mod mail;
mod malformed;
mod memory;
mod oauth;
mod overload;
mod postgres;
mod providers;
mod report;
mod rig;
mod schema_changes;
mod service;
mod sign_in;
mod sigterm;
mod slow_clients;
mod soak;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use xtask::process::{Interrupted, Signals};
use xtask::services::Services;
use xtask::workspace::print_step;

use crate::bench::machine;
use crate::page::are_defaults;
use report::Outcome;

#[derive(clap::Args, PartialEq)]
pub struct Args {
    /// The faults to inject [default: all]
    faults: Vec<Fault>,
    /// The number of rounds of repeated measurements
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    #[command(flatten)]
    soak: soak::SoakArgs,
}

/// A fault to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// kill -9 at random times under load
    Kill,
    /// kill -9 during each kind of outbound call
    KillDuringCalls,
    /// Postgres disconnected, restarted, recovering and unresponsive
    Postgres,
    /// A locked organization row, and a slow Postgres
    LockedRow,
    /// Five times the sustainable load
    Overload,
    /// 1,000 connections and eight hostile uploads
    Memory,
    /// Mail, code host and resolver unreachable, hanging and returning garbage
    Providers,
    /// 2,000 slow clients
    SlowClients,
    /// SIGTERM under load
    Sigterm,
    /// 10,000 malformed requests
    Malformed,
    /// Full disks (needs root)
    FullDisk,
    /// Clock jumps
    ClockJumps,
    /// Migrations on a million rows, during writes
    SchemaChanges,
    /// The object store disconnected, slow and unresponsive, and kill -9 of the node, while workers store objects
    Bindings,
    /// kill -9 of node, control plane and Postgres during restores, while clients write
    Databases,
    /// kill -9 of node, control plane and Postgres while visitors call AI models
    Billing,
    /// kill -9 of git node and control plane while 20 clients push to one branch
    Git,
    /// kill -9 of control plane and Postgres while organizations buy domains, and both providers fail at random
    Domains,
    /// kill -9 of mail node, server and node while clients send mail and workers reply
    Mail,
    /// kill -9 of server and node while hostnames get and renew certificates
    Certificates,
    /// Races of the authorization server, kill -9 during its requests, and a rotation of the signing key
    Oauth,
    /// A mixed workload on the whole platform, with a random fault at an interval
    Soak,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let mut services = Services::new(Signals::listen()?);
    machine::build(&mut services).await?;
    // The load generator and the service, which inherits this limit, open thousands of connections.
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    // The load generator must not be slower than the service.
    ensure!(
        machine::IS_RELEASE || !args.faults.is_empty(),
        "this is a debug build: run `cargo xtask chaos`, or select faults"
    );
    let with_default_options = Args { faults: Vec::new(), rounds: args.rounds, soak: args.soak.without_seed() };
    let writes_page = machine::IS_RELEASE && are_defaults(&with_default_options)?;
    let faults = if args.faults.is_empty() { Fault::value_variants() } else { &args.faults };
    let mut all_met = true;
    for fault in faults {
        let start = Instant::now();
        let outcome = match services.supervise(fault.run(args.rounds.max(1), &args.soak)).await {
            Ok(outcome) => outcome,
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => {
                print_step("Chaos", format_args!("{fault:?} failed: {error:#}"), start);
                all_met = false;
                continue;
            }
        };
        print_step("Chaos", format_args!("{fault:?} done"), start);
        report::print(&outcome);
        all_met &= outcome.is_met();
        if writes_page {
            report::write(*fault, &outcome)?;
        }
    }
    services.stop().await;
    if !writes_page {
        println!("\n{} stays as it is: only a release build with the default options changes it", report::PAGE);
    }
    Ok(if all_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Fault {
    async fn run(self, rounds: usize, soak: &soak::SoakArgs) -> Result<Outcome> {
        match self {
            Self::Kill => kill::run(rounds).await,
            Self::KillDuringCalls => kill_during_calls::run().await,
            Self::Postgres => postgres::run(rounds).await,
            Self::LockedRow => locked_row::run(rounds).await,
            Self::Overload => overload::run(rounds).await,
            Self::Memory => memory::run().await,
            Self::Providers => providers::run().await,
            Self::SlowClients => slow_clients::run().await,
            Self::Sigterm => sigterm::run(rounds).await,
            Self::Malformed => malformed::run().await,
            Self::FullDisk => full_disk::run().await,
            Self::ClockJumps => clock_jumps::run().await,
            Self::SchemaChanges => schema_changes::run().await,
            Self::Bindings => bindings::run(rounds).await,
            Self::Databases => databases::run(rounds).await,
            Self::Billing => billing::run(rounds).await,
            Self::Git => git::run(rounds).await,
            Self::Domains => domains::run(rounds).await,
            Self::Mail => mail::run(rounds).await,
            Self::Certificates => certificates::run(rounds).await,
            Self::Oauth => oauth::run(rounds).await,
            Self::Soak => soak::run(soak).await,
        }
    }
}

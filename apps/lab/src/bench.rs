//! `bench`: measures the product against a baseline.

mod api;
pub mod billing;
pub mod bindings;
pub mod databases;
mod dns;
mod edge;
mod git;
pub mod machine;
mod oauth;
pub mod platform;
pub mod report;
pub mod run;
pub mod server;
mod wrk;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(flatten)]
    api: api::Args,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Compare the zones API with PowerDNS: changes, lists and details
    Dns(dns::Args),
    /// Compare the node with nginx, and measure the time until a deployment is served on a node with many projects
    Edge(edge::Args),
    /// Measure secrets and object storage: the delay of a changed secret, reads through a worker, and 1,000 projects
    Bindings(bindings::Args),
    /// Measure the databases of projects: queries of a worker, enabling, idle databases, a backup and a revocation
    Databases(databases::Args),
    /// Measure AI calls and payments: deductions, webhooks, the latency that env.ai adds, and open streams
    Billing(billing::Args),
    /// Compare the git node with git http-backend and OpenSSH, and measure browsing
    Git(git::Args),
    /// Measure the authorization server: refreshes, verifications of access tokens, and memory
    Oauth(oauth::Args),
}

pub async fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        None => api::run(args.api).await,
        Some(Command::Dns(args)) => dns::run(args).await,
        Some(Command::Edge(args)) => edge::run(args).await,
        Some(Command::Bindings(args)) => bindings::run(args).await,
        Some(Command::Databases(args)) => databases::run(args).await,
        Some(Command::Billing(args)) => billing::run(args).await,
        Some(Command::Git(args)) => git::run(args).await,
        Some(Command::Oauth(args)) => oauth::run(args).await,
    }
}

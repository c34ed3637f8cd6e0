//! `bench`: measures the product against a baseline.

mod api;
mod auth;
pub mod billing;
pub mod bindings;
mod certificates;
mod cost;
pub mod databases;
mod dns;
mod edge;
mod git;
pub mod machine;
mod mail;
mod nginx;
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
    /// Compare TLS at a node with 10,000 certificates with nginx: memory, handshakes, requests and renewals
    Certificates(certificates::Args),
    /// Measure secrets and object storage: the delay of a changed secret, reads through a worker, and 1,000 projects
    Bindings(bindings::Args),
    /// Measure the databases of projects: queries of a worker, enabling, idle databases, a backup and a revocation
    Databases(databases::Args),
    /// Measure AI calls and payments: deductions, webhooks, the latency that env.ai adds, and open streams
    Billing(billing::Args),
    /// Compare the git node with git http-backend and OpenSSH, and measure browsing
    Git(git::Args),
    /// Compare the mail node with Postfix: accepted mails, mails handed over, and memory of connections
    Mail(mail::Args),
    /// Measure the sign-in of app users: the latency of current(), and sign-ins with a million sessions
    Auth(auth::Args),
    /// Measure the authorization server: refreshes, verifications of access tokens, and memory
    Oauth(oauth::Args),
    /// Measure the cost of many projects on one machine: memory, disk and processor
    Cost(cost::Args),
}

pub async fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        None => api::run(args.api).await,
        Some(Command::Dns(args)) => dns::run(args).await,
        Some(Command::Edge(args)) => edge::run(args).await,
        Some(Command::Certificates(args)) => certificates::run(args).await,
        Some(Command::Bindings(args)) => bindings::run(args).await,
        Some(Command::Databases(args)) => databases::run(args).await,
        Some(Command::Billing(args)) => billing::run(args).await,
        Some(Command::Git(args)) => git::run(args).await,
        Some(Command::Mail(args)) => mail::run(args).await,
        Some(Command::Auth(args)) => auth::run(args).await,
        Some(Command::Oauth(args)) => oauth::run(args).await,
        Some(Command::Cost(args)) => cost::run(args).await,
    }
}

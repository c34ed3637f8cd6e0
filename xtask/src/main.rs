//! The tool for developers and operators: see `cargo xtask --help`. Each command has a module.

mod audit;
mod billing;
mod ci;
mod codegen;
mod dev;
mod domain;
mod invariants;
mod lab;
mod mail;
mod migrate;
mod nameservers;
mod node;
mod oauth_client;
mod oauth_key;
mod org;
mod outbox;
mod output;
mod placement;
mod saga;
mod seal;
mod setting;
mod table;
mod test;
mod test_tools;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::process::{self, ExecChild};

#[derive(Parser)]
#[command(name = "xtask", about = "Developer and operator tooling", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run Postgres, the control API, the nodes and the sandbox on this machine
    Dev(dev::Args),
    /// Run the tests with a temporary Postgres cluster
    Test(test::Args),
    /// Measure performance against a baseline
    Bench(lab::Args),
    /// Inject faults and measure the reliability targets
    Chaos(lab::Args),
    /// Build the server with profile-guided optimization
    Pgo(lab::Args),
    /// Run all checks that a change must pass
    Ci,
    /// Apply, revert or list database migrations
    Migrate(migrate::Args),
    /// Manage nodes and their credentials
    Node(node::Args),
    /// Print the DNS records of the mail domain, or write them to a hosted zone
    Mail(mail::Args),
    /// Register, list and remove connected apps
    OauthClient(oauth_client::Args),
    /// List, rotate and retire the keys that sign access tokens
    OauthKey(oauth_key::Args),
    /// List audit events of all organizations and accounts
    Audit(audit::Args),
    /// List events of the payments provider that belong to no known organization, and correct AI credit
    Billing(billing::Args),
    /// List renewals of domains that organizations have not paid
    Domain(domain::Args),
    /// List outbox messages, and retry or drop dead letters
    Outbox(outbox::Args),
    /// Suspend and resume projects, and list the suspended ones
    Placement(placement::Args),
    /// List purchases and other multi-step operations, continue one, or end one
    Saga(saga::Args),
    /// Count sealed values by key, and rotate their keys
    Seal(seal::Args),
    /// Write the files that are generated from the migrations and the programs
    Codegen(codegen::Args),
    /// Check the workspace rules that the compiler cannot check
    Invariants(invariants::Args),
    /// Run a command that ends when xtask ends
    #[command(hide = true)]
    ExecChild(ExecChild),
}

fn main() -> ExitCode {
    process::exit_code(match Cli::parse().command {
        // Runs before the async runtime starts: a process that calls exec must have a single thread.
        Command::ExecChild(command) => command.run(),
        command => run(command),
    })
}

/// Runs a command on the main thread, which lives as long as xtask. The kernel ends a child when the thread that
/// started it ends, so a shorter-lived thread would not work.
#[tokio::main]
async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Dev(args) => dev::run(args).await,
        Command::Test(args) => test::run(args).await,
        Command::Bench(args) => lab::run("bench", args).await,
        Command::Chaos(args) => lab::run("chaos", args).await,
        Command::Pgo(args) => lab::run("pgo", args).await,
        Command::Ci => ci::run().await,
        Command::Migrate(args) => migrate::run(args).await,
        Command::Node(args) => node::run(args).await,
        Command::Mail(args) => mail::run(args).await,
        Command::OauthClient(args) => oauth_client::run(args).await,
        Command::OauthKey(args) => oauth_key::run(args).await,
        Command::Audit(args) => audit::run(args).await,
        Command::Billing(args) => billing::run(args).await,
        Command::Domain(args) => domain::run(args).await,
        Command::Outbox(args) => outbox::run(args).await,
        Command::Placement(args) => placement::run(args).await,
        Command::Saga(args) => saga::run(args).await,
        Command::Seal(args) => seal::run(args).await,
        Command::Codegen(args) => codegen::run(args).await,
        Command::Invariants(args) => invariants::run(args),
        Command::ExecChild(command) => command.run(),
    }
}

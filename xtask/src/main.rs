//! The developer's and the operator's tool: `cargo xtask --help`. One module per command.

mod bench;
mod chaos;
mod ci;
mod codegen;
mod debian;
mod dev;
mod dns_tools;
mod invariants;
mod judges;
mod migrate;
mod nameservers;
mod node;
mod npm;
mod obtain;
mod outbox;
mod postgres;
mod process;
mod pypi;
mod setting;
mod test;
mod usage;
mod workerd;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "xtask", about = "Developer and operator tooling", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything on this machine: Postgres, the control API and a node
    Dev(dev::Args),
    /// Run the tests with a Postgres of their own
    Test(test::Args),
    /// Measure what the product promises, beside something that is known
    Bench(bench::Args),
    /// Break it on purpose, and measure what it promises to survive
    Chaos(chaos::Args),
    /// Run every check that a change has to pass
    Ci,
    /// Move a database along the migrations
    Migrate(migrate::Args),
    /// Add nodes and renew their credentials
    Node(node::Args),
    /// List what is to be delivered outside, and have what was given up tried again
    Outbox(outbox::Args),
    /// Write the files that are derived from the migrations and from the programs
    Codegen(codegen::Args),
    /// Check what holds for the whole workspace and no compiler checks
    Invariants,
    /// Become a command that ends when xtask does
    #[command(hide = true)]
    ExecChild(process::ExecChild),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        // Before there is a runtime: what becomes another program should have one thread.
        Command::ExecChild(command) => command.run(),
        command => run(command),
    };
    outcome.unwrap_or_else(|error| {
        if let Some(stopped) = error.downcast_ref::<process::Stopped>() {
            return stopped.exit_code();
        }
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// On this thread, which lives as long as xtask does: a child that is to end with its parent ends with the thread that
/// started it.
#[tokio::main]
async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Dev(args) => dev::run(args).await,
        Command::Test(args) => test::run(args).await,
        Command::Bench(args) => bench::run(args).await,
        Command::Chaos(args) => chaos::run(args).await,
        Command::Ci => ci::run().await,
        Command::Migrate(args) => migrate::run(args).await,
        Command::Node(args) => node::run(args).await,
        Command::Outbox(args) => outbox::run(args).await,
        Command::Codegen(args) => codegen::run(args).await,
        Command::Invariants => invariants::run(),
        Command::ExecChild(command) => command.run(),
    }
}

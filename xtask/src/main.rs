//! The developer's and the operator's tool: `cargo xtask --help`. One module per command.

mod ci;
mod codegen;
mod dev;
mod dns_tools;
mod invariants;
mod judges;
mod lab;
mod migrate;
mod nameservers;
mod node;
mod outbox;
mod setting;
mod test;
mod workerd;

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
    /// Run everything on this machine: Postgres, the control API and a node
    Dev(dev::Args),
    /// Run the tests with a Postgres of their own
    Test(test::Args),
    /// Measure what the product promises, beside something that is known
    Bench(lab::Args),
    /// Break it on purpose, and measure what it promises to survive
    Chaos(lab::Args),
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
    Invariants(invariants::Args),
    /// Become a command that ends when xtask does
    #[command(hide = true)]
    ExecChild(ExecChild),
}

fn main() -> ExitCode {
    process::exit_code(match Cli::parse().command {
        // Before there is a runtime: a process that becomes another program should have one thread.
        Command::ExecChild(command) => command.run(),
        command => run(command),
    })
}

/// On this thread, which lives as long as xtask does: a child that must end with its parent ends with the thread that
/// started it.
#[tokio::main]
async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Dev(args) => dev::run(args).await,
        Command::Test(args) => test::run(args).await,
        Command::Bench(args) => lab::run("bench", false, args).await,
        Command::Chaos(args) => lab::run("chaos", true, args).await,
        Command::Ci => ci::run().await,
        Command::Migrate(args) => migrate::run(args).await,
        Command::Node(args) => node::run(args).await,
        Command::Outbox(args) => outbox::run(args).await,
        Command::Codegen(args) => codegen::run(args).await,
        Command::Invariants(args) => invariants::run(args),
        Command::ExecChild(command) => command.run(),
    }
}

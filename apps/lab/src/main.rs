//! Benchmarks and fault injection, run by `cargo xtask bench` and `cargo xtask chaos`.

mod bench;
mod chaos;
mod usage;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::process::{self, ExecChild};

#[derive(Parser)]
#[command(
    name = "lab",
    bin_name = "cargo xtask",
    about = "Benchmarks and fault injection",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure what the product promises, beside something that is known
    Bench(bench::Args),
    /// Break it on purpose, and measure what it promises to survive
    Chaos(chaos::Args),
    /// Become a command that ends when the lab does
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

/// On this thread, which lives as long as the process: a child that must end with its parent ends with the thread that
/// started it.
#[tokio::main]
async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Bench(args) => bench::run(args).await,
        Command::Chaos(args) => chaos::run(args).await,
        Command::ExecChild(command) => command.run(),
    }
}

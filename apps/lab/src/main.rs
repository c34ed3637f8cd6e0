//! Benchmarks and fault injection, run by `cargo xtask bench`, `cargo xtask chaos` and `cargo xtask pgo`.

mod bench;
mod chaos;
mod connected_app;
mod git_host;
mod mail_host;
mod page;
mod pgo;
mod program;
mod random;
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
    /// Measure performance against a baseline
    ///
    /// A release build with the default options and all parts replaces the benchmark's section of docs/benchmarks.md.
    Bench(bench::Args),
    /// Inject faults and measure the reliability targets
    ///
    /// A release build with the default options replaces the section of each fault in docs/reliability.md.
    Chaos(chaos::Args),
    /// Build the server with profile-guided optimization
    ///
    /// Runs parts of the API benchmark with an instrumented server, and then builds the server with the result. Needs
    /// llvm-profdata: `rustup component add llvm-tools`.
    Pgo,
    /// Run a command that ends when the lab ends
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

/// Runs a command on the main thread, which lives as long as the process. This is necessary because the kernel ends a
/// child together with the thread that started it.
#[tokio::main]
async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Bench(args) => bench::run(args).await,
        Command::Chaos(args) => chaos::run(args).await,
        Command::Pgo => pgo::run().await,
        Command::ExecChild(command) => command.run(),
    }
}

//! `svc`, the command-line client, documented in `docs/cli.md`.
//!
//! Data goes to stdout, messages go to stderr.

mod args;
mod browser;
mod checkout;
mod commands;
mod config;
mod dotenv;
mod error;
mod file;
mod git;
mod link;
mod loopback;
mod money;
mod options;
mod output;
mod pack;
mod polling;
mod progress;
mod prompt;
mod resources;
mod svc;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Args;
use crate::error::CliError;
use crate::output::Output;

fn main() -> ExitCode {
    let args = Args::parse();
    let out = Output::new(args.json);
    match run(args, &out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out.error(&error);
            error.exit_code()
        }
    }
}

fn run(args: Args, out: &Output) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(commands::run(args, out))
}

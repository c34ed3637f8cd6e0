//! `svc`: the platform from a terminal. What it does is documented in `docs/cli.md`.
//!
//! Data goes to stdout and words to stderr, so that either may be piped on.

mod args;
mod browser;
mod commands;
mod config;
mod failure;
mod file;
mod git;
mod link;
mod loopback;
mod options;
mod output;
mod pack;
mod progress;
mod prompt;
mod resources;
mod svc;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Args;
use crate::failure::Failure;
use crate::output::Output;

fn main() -> ExitCode {
    let args = Args::parse();
    let out = Output::new(args.json);
    match run(args, &out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            out.failed(&failure);
            failure.exit_code()
        }
    }
}

fn run(args: Args, out: &Output) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(commands::run(args, out))
}

//! `bench`, `chaos` and `pgo`: build `apps/lab` and run it with the same arguments, so that xtask does not need the lab's
//! dependencies.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use xtask::process::{Signals, exit_code_of};
use xtask::workspace;

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Arguments of the lab: `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs a command of the lab, in a release build. The lab builds the programs that it measures in the same mode.
pub async fn run(command: &str, args: Args) -> Result<ExitCode> {
    let mut cargo = workspace::cargo(&["run", "--release", "--quiet", "--package", "lab"])?;
    cargo.args(["--", command]).args(args.arguments);
    Ok(exit_code_of(Signals::listen()?.run(cargo).await?))
}

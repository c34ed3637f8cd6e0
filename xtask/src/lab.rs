//! `bench` and `chaos`: build `apps/lab` and run it with the same arguments, so that xtask does not need the lab's
//! dependencies.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use xtask::process::Signals;
use xtask::workspace;

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Arguments of the lab: `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs a command of the lab, in a debug or a release build.
pub async fn run(command: &str, release: bool, args: Args) -> Result<ExitCode> {
    let mut cargo = workspace::cargo(&["run", "--quiet", "--package", "lab"])?;
    if release {
        cargo.arg("--release");
    }
    cargo.args(["--", command]).args(args.arguments);
    let status = Signals::listen()?.run(cargo).await?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

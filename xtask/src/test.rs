//! `test`: cargo's own test runner, and around it an empty Postgres and the programs that tests may start.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use crate::postgres::Cluster;
use crate::process::Signals;
use crate::workspace::cargo;

#[derive(clap::Args)]
pub struct Args {
    /// Passed on to `cargo test`: a filter, `-p <crate>`, `-- --nocapture`, …
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let all = !args.arguments.iter().any(|it| it == "--package" || it.to_string_lossy().starts_with("-p"));
    // Tests that start the programs are in the programs' crates.
    if all || args.arguments.iter().any(|it| it == "server" || it == "node") {
        // All that the tests are made of too, or cargo would build the crates once for them and once for the programs.
        let everything = ["build", "--workspace", "--bins", "--tests", "--examples"];
        let build = cargo(if all { &everything } else { &["build", "-p", "server", "-p", "node"] })?;
        if !signals.run(build).await?.success() {
            return Ok(ExitCode::FAILURE);
        }
    }
    let cluster = Cluster::test()?;
    let mut tests = cargo(if all { &["test", "--workspace"] } else { &["test"] })?;
    tests.args(&args.arguments);
    tests.env("SVC_TEST_DATABASE_URL", cluster.url("postgres")).env("SVC_TEST_PG_BIN", cluster.bin());
    let status = signals.run(tests).await?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

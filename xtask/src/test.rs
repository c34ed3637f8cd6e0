//! `test`: runs `cargo test` with an empty Postgres cluster and the programs that tests start.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use xtask::postgres::{Cluster, TemporaryFiles};
use xtask::process::{Signals, exit_code_of};
use xtask::workerd;
use xtask::workspace::{BUILD_PROGRAMS, BUILD_WITH_TESTS, cargo, cargo_test};

use crate::{nameservers, test_tools};

/// The environment variable with the number of tests that run at the same time.
const THREADS: &str = "RUST_TEST_THREADS";

/// The environment variable with the folder of temporary files.
const TEMPORARY: &str = "TMPDIR";

#[derive(clap::Args)]
pub struct Args {
    /// Arguments of `cargo test`: a filter, `-p <crate>`, `-- --nocapture`, …
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub async fn run(Args { mut arguments }: Args) -> Result<ExitCode> {
    // clap consumes a leading `--`.
    if std::env::args_os().nth(2).is_some_and(|first| first == "--") {
        arguments.insert(0, "--".into());
    }
    let mut signals = Signals::listen()?;
    let all = !arguments.iter().any(|it| it == "--package" || it.to_string_lossy().starts_with("-p"));
    // Only tests in the programs' crates start the programs.
    let starts_programs = all || arguments.iter().any(|it| it == "server" || it == "node" || it == "cli");
    if starts_programs {
        let build = cargo(if all { BUILD_WITH_TESTS } else { BUILD_PROGRAMS })?;
        if !signals.run(build).await?.success() {
            return Ok(ExitCode::FAILURE);
        }
    }
    let workerd = if starts_programs { workerd::find() } else { None };
    let includes = |package: &str| all || arguments.iter().any(|it| it == package);
    let tools = if includes("server") { test_tools::find() } else { Vec::new() };
    let nameservers = if includes("server") || includes("dns") { nameservers::find() } else { None };
    let cluster = Cluster::test()?;
    let private_clusters = if starts_programs { find_programs_of_private_clusters(&cluster) } else { Vec::new() };
    if all {
        arguments.insert(0, "--workspace".into());
    }
    let mut tests = cargo_test(&arguments)?;
    if std::env::var_os(THREADS).is_none() {
        tests.env(THREADS, default_threads().to_string());
    }
    tests.env("SVC_TEST_DATABASE_URL", cluster.url("postgres"));
    let files = if std::env::var_os(TEMPORARY).is_none() { TemporaryFiles::in_memory()? } else { None };
    tests.envs(files.as_ref().map(|files| (TEMPORARY, files.path())));
    tests.envs(tools);
    tests.envs(private_clusters);
    if let Some(workerd) = workerd {
        tests.env("SVC_TEST_WORKERD", workerd);
    }
    if let Some(nameservers) = nameservers {
        tests.env("SVC_TEST_NAMESERVERS", nameservers);
    }
    Ok(exit_code_of(signals.run(tests).await?))
}

/// Returns the number of tests that run at the same time: three times that of the processors, because the long tests
/// mostly wait, for example for the intervals of a program.
fn default_threads() -> usize {
    3 * std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Returns the environment variables of `testkit::PrivatePostgres`. Prints the consequence if the programs of
/// Postgres are unavailable.
fn find_programs_of_private_clusters(cluster: &Cluster) -> Vec<(&'static str, PathBuf)> {
    let folder = cluster.log().with_file_name("private");
    match cluster.bin_with_clients(&["pg_upgrade"]).and_then(|bin| Ok((bin, cluster.private_folder(&folder)?))) {
        Ok((bin, ())) => vec![("SVC_TEST_PG_BIN", bin), ("SVC_TEST_PG_DIR", folder)],
        Err(error) => {
            println!("  pg_dump   not available ({error:#}): tests of databases are skipped");
            Vec::new()
        }
    }
}

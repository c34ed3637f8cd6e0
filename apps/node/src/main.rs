//! `svc-node`.

use std::env;
use std::process::ExitCode;

use daemon::{Program, Stop};
use node::Node;
use node::config::{CLAIM, Config, LOG, TABLE};
use node::database::backup::launch as postgres;
use node::worker::launch;
use settings::Settings;

const PROGRAM: Program =
    Program { name: "svc-node", about: "serves deployed projects by Host.", title: "The node", table: TABLE };

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    // This runs before the runtime starts, because `exec` requires a single-threaded process.
    let internal = arguments.split_first().and_then(|(first, request)| match first.to_str() {
        Some(launch::ARGUMENT) => Some(launch::exec(request)),
        Some(postgres::ARGUMENT) => Some(postgres::exec(request)),
        _ => None,
    });
    match internal {
        Some(executed) => PROGRAM.exit_code(executed),
        None => PROGRAM.main(&arguments, run),
    }
}

#[tokio::main]
async fn run() -> anyhow::Result<()> {
    daemon::install_crypto_provider();
    let settings = Settings::from_env(TABLE, &CLAIM)?;
    // More detailed records of `tokio_postgres` contain statements with the verifiers of passwords.
    daemon::init_log(settings.get(&LOG)?.add_directive("tokio_postgres=info".parse()?));
    let stop = Stop::listen()?;
    let node = Node::start(&Config::new(&settings)?)?;
    node.run_until(stop.requested()).await
}

//! `svc-node`.

use std::env;
use std::io::{IsTerminal as _, stdout};
use std::process::ExitCode;

use node::Node;
use node::config::{CLAIM, Config, LOG, TABLE};
use node::database::backup::launch as postgres;
use node::worker::launch;
use settings::Settings;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

const HELP: &str = "\
svc-node serves deployed projects by Host. It is configured by its environment.

  svc-node              runs until SIGTERM or Ctrl-C
  svc-node --settings   prints the settings as Markdown
  svc-node --help       prints this help
";

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    // This runs before the runtime starts, because `exec` requires a single-threaded process.
    let internal = arguments.split_first().and_then(|(first, request)| match first.to_str() {
        Some(launch::ARGUMENT) => Some(launch::exec(request)),
        Some(postgres::ARGUMENT) => Some(postgres::exec(request)),
        _ => None,
    });
    if let Some(executed) = internal {
        return match executed {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("svc-node: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    match arguments.iter().map(|argument| argument.to_str()).collect::<Vec<_>>().as_slice() {
        [] => match run() {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => eprintln!("svc-node: {error:#}"),
        },
        [Some("--settings")] => {
            print!("{}", settings::markdown("The node", TABLE));
            return ExitCode::SUCCESS;
        }
        [Some("--help")] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => eprint!("{HELP}"),
    }
    ExitCode::FAILURE
}

#[tokio::main]
async fn run() -> anyhow::Result<()> {
    // Fails only if a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = Settings::from_env(TABLE, &CLAIM)?;
    log(settings.get(&LOG)?)?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let node = Node::start(&Config::new(&settings)?)?;
    node.run_until(async {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
        tracing::info!("stopping");
    })
    .await
}

fn log(filter: EnvFilter) -> anyhow::Result<()> {
    // More detailed records of `tokio_postgres` contain statements with the verifiers of passwords.
    let filter = filter.add_directive("tokio_postgres=info".parse()?);
    let format = tracing_subscriber::fmt().with_env_filter(filter);
    if stdout().is_terminal() {
        format.pretty().init();
    } else {
        format.json().init();
    }
    Ok(())
}

//! `svc-node`.

use std::env;
use std::io::{IsTerminal as _, stdout};
use std::process::ExitCode;

use node::Node;
use node::config::{CLAIM, Config, LOG, TABLE};
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
    // Before the runtime starts: `exec` requires a single-threaded process.
    if let Some((first, request)) = arguments.split_first()
        && first == launch::ARGUMENT
    {
        return match launch::exec(request) {
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
    log(settings.get(&LOG)?);
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

fn log(filter: EnvFilter) {
    let format = tracing_subscriber::fmt().with_env_filter(filter);
    if stdout().is_terminal() { format.pretty().init() } else { format.json().init() }
}

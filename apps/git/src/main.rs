//! `svc-git`.

use std::env;
use std::io::{IsTerminal as _, stdout};
use std::path::Path;
use std::process::ExitCode;

use git_node::config::{CLAIM, Config, LOG, TABLE};
use git_node::{GitNode, hook};
use settings::Settings;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

const HELP: &str = "\
svc-git serves the git repositories of projects over HTTPS and SSH. It is configured by its environment.

  svc-git              runs until SIGTERM or Ctrl-C
  svc-git --settings   prints the settings as Markdown
  svc-git --help       prints this help
";

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().collect();
    let program = arguments.first().and_then(|program| Path::new(program).file_name()?.to_str());
    if let Some(hook) = program.and_then(hook::named) {
        return hook::run(hook, arguments.get(1).and_then(|phase| phase.to_str()));
    }
    match arguments.iter().skip(1).map(|argument| argument.to_str()).collect::<Vec<_>>().as_slice() {
        [] => match run() {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => eprintln!("svc-git: {error:#}"),
        },
        [Some("--settings")] => {
            print!("{}", settings::markdown("The git node", TABLE));
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
    let node = GitNode::start(Config::new(&settings)?).await?;
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
    if stdout().is_terminal() {
        format.pretty().init();
    } else {
        format.json().init();
    }
}

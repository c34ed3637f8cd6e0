//! The `svc-server` program.

use std::env;
use std::process::ExitCode;

use kernel::ClockRng;
use server::config::{CLAIM, Config, LOG, TABLE};
use server::{Server, Telemetry, print, start_logging};
use settings::Settings;
use tokio::signal::unix::{SignalKind, signal};

const HELP: &str = "\
svc-server is the control plane. It reads its configuration from environment variables.

  svc-server                run the server until SIGTERM or Ctrl-C
  svc-server --print PAGE   print a reference page: openapi, errors, routes, nodes or settings
  svc-server --help         print this help
";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => match run().await {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => eprintln!("svc-server: {error:#}"),
        },
        ["--print", page] => match print(page) {
            Some(text) => {
                print!("{text}");
                return ExitCode::SUCCESS;
            }
            None => eprint!("{HELP}"),
        },
        ["--help"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => eprint!("{HELP}"),
    }
    ExitCode::FAILURE
}

async fn run() -> anyhow::Result<()> {
    let settings = Settings::from_env(TABLE, &CLAIM)?;
    let config = Config::new(&settings)?;
    let telemetry = Telemetry::start(config.otlp_url.as_deref())?;
    start_logging(settings.get(&LOG)?, &telemetry);
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let server = Server::bind(&config, ClockRng::system(), telemetry.registry())?;
    let tls = server.tls.map(|tls| tls.to_string());
    tracing::info!(public = %server.public, tls, internal = %server.internal, "listening");
    if let Some(primary) = server.primary {
        tracing::info!(%primary, "listening for zone transfers");
    }
    server
        .run_until(async {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = interrupted.recv() => {}
            }
            tracing::info!("shutting down");
        })
        .await?;
    telemetry.stop().await;
    Ok(())
}

//! `svc-sandbox`.

use std::env;
use std::process::ExitCode;

use anyhow::Result;
use sandbox::Sandbox;
use sandbox::config::{CLAIM, Config, TABLE};
use settings::Settings;
use tokio::signal::unix::{SignalKind, signal};

const HELP: &str = "\
svc-sandbox simulates the external systems for development: a code host, identity providers for the end users of apps,
an SMTP server, a notification service, a name server, an S3 server, a model-lending service, a payments provider, a
registrar, AI models and a connected app. Its environment configures it.

  svc-sandbox              runs until SIGTERM or Ctrl-C
  svc-sandbox --settings   prints the settings as Markdown
  svc-sandbox --help       prints this help
";

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => match run() {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => eprintln!("svc-sandbox: {error:#}"),
        },
        ["--settings"] => {
            print!("{}", settings::markdown("The sandbox", TABLE));
            return ExitCode::SUCCESS;
        }
        ["--help"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => eprint!("{HELP}"),
    }
    ExitCode::FAILURE
}

#[tokio::main]
async fn run() -> Result<()> {
    let config = Config::new(&Settings::from_env(TABLE, &CLAIM)?)?;
    let sandbox = Sandbox::start(&config).await?;
    let Config { smtp_listen, sns_listen, dns_listen, s3_listen, .. } = config;
    let http = sandbox.address()?;
    println!("listening on http://{http}, smtp {smtp_listen}, dns {dns_listen}, s3 http://{s3_listen}");
    println!("notification service on https://{sns_listen}");
    let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        () = sandbox.run() => {}
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    Ok(())
}

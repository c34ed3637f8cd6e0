//! `svc-git`.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use daemon::{Program, Stop};
use git_node::config::{CLAIM, Config, LOG, TABLE};
use git_node::{GitNode, hook};
use settings::Settings;

const PROGRAM: Program = Program {
    name: "svc-git",
    about: "serves the git repositories of projects over HTTPS and SSH.",
    title: "The git node",
    table: TABLE,
};

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().collect();
    let program = arguments.first().and_then(|program| Path::new(program).file_name()?.to_str());
    if let Some(hook) = program.and_then(hook::named) {
        return hook::run(hook, arguments.get(1).and_then(|phase| phase.to_str()));
    }
    PROGRAM.main(arguments.get(1..).unwrap_or_default(), run)
}

#[tokio::main]
async fn run() -> anyhow::Result<()> {
    daemon::install_crypto_provider();
    let settings = Settings::from_env(TABLE, &CLAIM)?;
    daemon::init_log(settings.get(&LOG)?);
    let stop = Stop::listen()?;
    let node = GitNode::start(Config::new(&settings)?).await?;
    node.run_until(stop.requested()).await
}

//! `svc-git`.

use std::env;
use std::process::ExitCode;

use daemon::{Program, Stop};
use git_node::GitNode;
use git_node::config::{CLAIM, Config, LOG, TABLE};
use settings::Settings;

const PROGRAM: Program = Program {
    name: "svc-git",
    about: "serves the git repositories of projects over HTTPS and SSH.",
    title: "The git node",
    table: TABLE,
};

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    PROGRAM.main(&arguments, run)
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

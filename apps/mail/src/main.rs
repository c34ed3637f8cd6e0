//! `svc-mail`.

use std::env;
use std::process::ExitCode;

use daemon::{Program, Stop};
use mail_node::MailNode;
use mail_node::config::{CLAIM, Config, LOG, TABLE};
use settings::Settings;

const PROGRAM: Program = Program {
    name: "svc-mail",
    about: "receives mail for the addresses of projects over SMTP.",
    title: "The mail node",
    table: TABLE,
};

fn main() -> ExitCode {
    PROGRAM.main(&env::args_os().skip(1).collect::<Vec<_>>(), run)
}

#[tokio::main]
async fn run() -> anyhow::Result<()> {
    daemon::install_crypto_provider();
    let settings = Settings::from_env(TABLE, &CLAIM)?;
    daemon::init_log(settings.get(&LOG)?);
    let stop = Stop::listen()?;
    let node = MailNode::start(Config::new(&settings)?).await?;
    node.run_until(stop.requested()).await
}

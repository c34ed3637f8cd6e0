//! `node`: the nodes that the control plane knows; for operators, like `migrate`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use convergence::{Convergence, NodeName};
use kernel::World;
use kernel::audit::Actor;
use store::{Config, Store};

use crate::setting::database_url;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
    /// The database [default: SVC_DATABASE_URL, or what the file SVC_DATABASE_URL_FILE holds]
    #[arg(long, global = true, value_name = "URL")]
    database_url: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Add a node and print its credential: the one time that it is shown
    Add { name: NodeName },
    /// Give a node a new credential and print it; the old one ends at once
    Renew { name: NodeName },
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let store = Store::new(&Config::new(database_url(args.database_url)?, "xtask"), World::system())?;
    let convergence = Convergence::new(store);
    let node = match args.command {
        Command::Add { name } => convergence.node_add(&Actor::operator("xtask node add"), name).await?,
        Command::Renew { name } => convergence.node_renew(&Actor::operator("xtask node renew"), name).await?,
    };
    println!("{}", node.token.reveal());
    Ok(ExitCode::SUCCESS)
}

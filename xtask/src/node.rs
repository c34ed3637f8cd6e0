//! `node`: the nodes that the control plane knows; for operators, like `migrate`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use convergence::{NodeName, Nodes};
use kernel::audit::Actor;

use crate::setting::Database;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    database: Database,
}

#[derive(Subcommand)]
enum Command {
    /// Add a node and print its credential: the one time that it is shown
    Add { name: NodeName },
    /// List the nodes: name, id, projects at home there, when it was last seen
    List,
    /// Give a node a new credential and print it; the old one ends at once
    Renew { name: NodeName },
    /// End a node: its credential opens nothing any more, and its projects go to the others
    Revoke { name: NodeName },
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let nodes = Nodes::new(args.database.store()?);
    match args.command {
        Command::Add { name } => {
            println!("{}", nodes.add(&Actor::operator("xtask node add"), name).await?.token.reveal());
        }
        Command::Renew { name } => {
            println!("{}", nodes.renew(&Actor::operator("xtask node renew"), name).await?.token.reveal());
        }
        Command::List => {
            for view in nodes.list().await? {
                let seen = view.seen_at.map_or_else(|| "never".to_owned(), |at| at.to_string());
                println!("{}  {}  {} projects  seen {seen}", view.node.name, view.node.id, view.placements);
            }
        }
        Command::Revoke { name } => {
            let revoked = nodes.revoke(&Actor::operator("xtask node revoke"), &name).await?;
            println!("{} projects went to other nodes, {} wait for one", revoked.moved, revoked.waiting);
        }
    }
    Ok(ExitCode::SUCCESS)
}

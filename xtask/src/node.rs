//! `node`: manages the nodes of the control plane. Like `migrate`, it is also for operators.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use convergence::{NodeName, Nodes};
use kernel::audit::Actor;

use crate::setting::DatabaseArgs;

pub type Args = DatabaseArgs<Command>;

#[derive(Subcommand)]
pub enum Command {
    /// Add a node and print its credential, which is shown only once
    Add { name: NodeName },
    /// List the nodes: name, id, number of placed projects, time last seen
    List,
    /// Give a node a new credential and print it; the old one is revoked immediately
    Renew { name: NodeName },
    /// Revoke a node's credential and move its projects to other nodes
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
                let last_seen = view.last_seen_at.map_or_else(|| "never".to_owned(), |at| at.to_string());
                println!("{}  {}  projects: {}  last seen {last_seen}", view.node.name, view.node.id, view.placements);
            }
        }
        Command::Revoke { name } => {
            let revoked = nodes.revoke(&Actor::operator("xtask node revoke"), &name).await?;
            println!("moved to other nodes: {}, pending: {}", revoked.moved, revoked.pending);
        }
    }
    Ok(ExitCode::SUCCESS)
}

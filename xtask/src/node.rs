//! `node`: manages the nodes of the control plane. Like `migrate`, it is also for operators.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use convergence::{NewNode, Node, NodeKind, NodeName, Nodes};
use kernel::audit::Actor;

use crate::output::{out, print_credential};
use crate::setting::DatabaseArgs;

pub type Args = DatabaseArgs<Command>;

#[derive(Subcommand)]
pub enum Command {
    /// Add a node and print its credential, which is shown only once
    Add {
        name: NodeName,
        #[command(flatten)]
        kind: KindArgs,
    },
    /// List the nodes: name, id, kind, number of placed projects, time of the last request
    List,
    /// Give a node a new credential and print it; the old one is revoked immediately
    Renew { name: NodeName },
    /// Revoke a node's credential and move its projects to other nodes
    Revoke { name: NodeName },
}

/// The kind of a new node. Without an option, it is a node for projects.
#[derive(clap::Args)]
pub struct KindArgs {
    /// Add the git node
    #[arg(long, conflicts_with = "mail")]
    git: bool,
    /// Add a mail node
    #[arg(long)]
    mail: bool,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let nodes = Nodes::new(args.database.store().await?);
    match args.command {
        Command::Add { name, kind } => {
            let added = nodes.add(&Actor::operator("xtask node add"), name, kind.kind()).await?;
            print(&added)?;
        }
        Command::Renew { name } => {
            let renewed = nodes.renew(&Actor::operator("xtask node renew"), &name).await?;
            print(&renewed)?;
        }
        Command::List => {
            for view in nodes.list().await? {
                let last_seen = view.last_seen_at.map_or_else(|| "never".to_owned(), |at| at.to_string());
                let Node { name, id, kind, .. } = view.node;
                out!("{name}  {id}  {kind}  projects: {}  last seen {last_seen}", view.placements)?;
            }
        }
        Command::Revoke { name } => {
            let revoked = nodes.revoke(&Actor::operator("xtask node revoke"), &name).await?;
            out!("moved to other nodes: {}, pending: {}", revoked.moved, revoked.pending)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the credential of a node.
fn print(node: &NewNode) -> Result<()> {
    print_credential(node.token.reveal(), &format!("run `xtask node renew {}`", node.node.name))
}

impl KindArgs {
    const fn kind(&self) -> NodeKind {
        match (self.git, self.mail) {
            (true, _) => NodeKind::Git,
            (_, true) => NodeKind::Mail,
            _ => NodeKind::App,
        }
    }
}

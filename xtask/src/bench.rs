//! `bench`: what it costs, measured beside something that is known.

mod edge;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The node's front beside nginx, and how soon a deploy is served on a node of many projects
    Edge(edge::Args),
}

pub async fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Edge(args) => edge::run(args).await,
    }
}

//! `outbox`: messages on their way out, and those that were given up; for operators, like `migrate`. Payloads stay sealed.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Subcommand;
use kernel::audit::Actor;
use store::outbox::{Filter, Letter, Retry};
use uuid::Uuid;

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
    /// List what is queued, oldest first
    List {
        /// Only what was given up
        #[arg(long)]
        dead: bool,
        /// Only this topic
        #[arg(long)]
        topic: Option<String>,
    },
    /// Have what was given up tried again
    Retry {
        /// This message
        #[arg(required_unless_present = "dead")]
        id: Option<Uuid>,
        /// All that were given up
        #[arg(long, conflicts_with = "id")]
        dead: bool,
    },
    /// Remove a message: it is not delivered any more
    Drop { id: Uuid },
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let store = args.database.store()?;
    match args.command {
        Command::List { dead, topic } => print(&store.outbox_list(&Filter { dead, topic }).await?),
        Command::Retry { id, dead: _ } => {
            let which = id.map_or(Retry::All, Retry::One);
            let retried = store.outbox_retry(&Actor::operator("xtask outbox retry"), which).await?;
            ensure!(retried > 0 || id.is_none(), "not there, or not given up: what waits is tried again by itself");
            println!("{retried} will be tried again");
        }
        Command::Drop { id } => {
            let dropped = store.outbox_drop(&Actor::operator("xtask outbox drop"), id).await?;
            ensure!(dropped, "there is no such message: delivered meanwhile, or withdrawn");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(letters: &[Letter]) {
    let head = ["id", "topic", "key", "attempts", "created", "next attempt", "last error"].map(str::to_owned);
    let rows: Vec<[String; 7]> = std::iter::once(head).chain(letters.iter().map(row)).collect();
    let widths: [usize; 7] = std::array::from_fn(|column| {
        rows.iter().filter_map(|row| row.get(column)).map(|it| it.chars().count()).max().unwrap_or(0)
    });
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    if letters.len() as i64 == Filter::LIMIT {
        println!("… there may be more");
    }
}

fn row(letter: &Letter) -> [String; 7] {
    let next = letter.dead_at.map_or_else(|| letter.due_at.to_string(), |_| "dead".to_owned());
    [
        letter.id.to_string(),
        letter.topic.clone(),
        letter.key.clone(),
        letter.attempts.to_string(),
        letter.created_at.to_string(),
        next,
        letter.last_error.clone().unwrap_or_default(),
    ]
}

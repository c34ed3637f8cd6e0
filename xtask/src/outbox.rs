//! `outbox`: lists queued messages and dead letters, without their sealed payloads. Like `migrate`, it is also for
//! operators.

use std::io;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Subcommand;
use kernel::audit::Actor;
use store::outbox::{Filter, QueuedMessage, Retry};
use uuid::Uuid;

use crate::output::out;
use crate::setting::DatabaseArgs;
use crate::table;

pub type Args = DatabaseArgs<Command>;

#[derive(Subcommand)]
pub enum Command {
    /// List queued messages, oldest first
    List {
        /// Only dead letters
        #[arg(long)]
        dead: bool,
        /// Only this topic
        #[arg(long)]
        topic: Option<String>,
    },
    /// Retry dead letters
    Retry {
        /// The id of a message
        #[arg(required_unless_present = "dead")]
        id: Option<Uuid>,
        /// Retry all dead letters
        #[arg(long, conflicts_with = "id")]
        dead: bool,
    },
    /// Delete messages without delivering them
    Drop {
        /// The id of a message
        #[arg(required_unless_present = "topic")]
        id: Option<Uuid>,
        /// Delete all messages of this topic
        #[arg(long, conflicts_with = "id")]
        topic: Option<String>,
        /// Only its dead letters
        #[arg(long, requires = "topic", conflicts_with = "id")]
        dead: bool,
    },
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let store = args.database.store().await?;
    match args.command {
        Command::List { dead, topic } => print(&store.outbox_list(&Filter { dead, topic }).await?)?,
        Command::Retry { id, dead: _ } => {
            let which = id.map_or(Retry::All, Retry::One);
            let retried = store.outbox_retry(&Actor::operator("xtask outbox retry"), which).await?;
            ensure!(
                retried > 0 || id.is_none(),
                "no dead letter with this id; pending messages are retried automatically"
            );
            out!("messages to retry: {retried}")?;
        }
        Command::Drop { id, topic, dead } => {
            let actor = Actor::operator("xtask outbox drop");
            if let Some(id) = id {
                let dropped = store.outbox_drop(&actor, id).await?;
                ensure!(dropped, "no message with this id: it was delivered or withdrawn");
                out!("dropped {id}")?;
            }
            if let Some(topic) = topic {
                let dropped = store.outbox_drop_topic(&actor, &topic, dead).await?;
                out!("dropped messages: {dropped}")?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(messages: &[QueuedMessage]) -> io::Result<()> {
    let head = ["id", "topic", "key", "attempts", "created", "next attempt", "last error"];
    table::print(head, messages.iter().map(row), Filter::MAX_MESSAGES)
}

fn row(message: &QueuedMessage) -> [String; 7] {
    let next = message.dead_lettered_at.map_or_else(|| message.next_attempt_at.to_string(), |_| "dead".to_owned());
    [
        message.id.to_string(),
        message.topic.clone(),
        message.key.clone(),
        message.attempts.to_string(),
        message.created_at.to_string(),
        next,
        message.last_error.clone().unwrap_or_default(),
    ]
}

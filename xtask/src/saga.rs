//! `saga`: lists purchases and other multi-step operations, continues them and ends them. Like `migrate`, it is also
//! for operators.

use std::io;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Subcommand;
use kernel::audit::Actor;
use serde_json::Value;
use store::Store;
use store::saga::{SagaFilter, SagaStatus};
use uuid::Uuid;

use crate::output::out;
use crate::setting::DatabaseArgs;
use crate::table;

pub type Args = DatabaseArgs<Command>;

#[derive(Subcommand)]
pub enum Command {
    /// List unfinished sagas, oldest first
    List {
        /// All sagas, newest first
        #[arg(long)]
        all: bool,
        /// Only this kind
        #[arg(long)]
        kind: Option<String>,
    },
    /// Continue an unfinished saga now
    Retry { id: Uuid },
    /// End an unfinished saga: its steps are undone, and a charge is refunded
    Abandon { id: Uuid },
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let store = args.database.store().await?;
    match args.command {
        Command::List { all, kind } => print(&store.saga_list(&SagaFilter { finished: all, kind }).await?)?,
        Command::Retry { id } => {
            let is_retried = store.saga_retry(&Actor::operator("xtask saga retry"), id).await?;
            ensure!(is_retried, explain_refusal(&store, id).await?);
            out!("a server continues {id}")?;
        }
        Command::Abandon { id } => {
            let is_abandoned = store.saga_abandon(&Actor::operator("xtask saga abandon"), id).await?;
            ensure!(is_abandoned, explain_refusal(&store, id).await?);
            out!("a server undoes the steps of {id}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns why a saga cannot be continued or ended.
async fn explain_refusal(store: &Store, id: Uuid) -> Result<String> {
    Ok(match store.saga_find(id).await? {
        None => format!("there is no saga {id}; `xtask saga list --all` lists the sagas"),
        Some(saga) if saga.finished_at.is_some() => format!("the saga is finished, with the state {}", saga.state),
        Some(_) => "a server executes the saga; try again in 15 seconds".to_owned(),
    })
}

fn print(sagas: &[SagaStatus]) -> io::Result<()> {
    let head =
        ["id", "kind", "key", "name", "org", "state", "step", "attempts", "started", "next attempt", "last error"];
    table::print(head, sagas.iter().map(row), SagaFilter::MAX_SAGAS)
}

fn row(saga: &SagaStatus) -> [String; 11] {
    let next = saga.finished_at.map_or_else(|| saga.next_attempt_at.to_string(), |_| "never".to_owned());
    [
        saga.id.to_string(),
        saga.kind.clone(),
        saga.key.clone(),
        // The name by which an operator finds the object at its provider.
        saga.input.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(),
        saga.org_id.to_string(),
        saga.state.to_string(),
        saga.step.clone().unwrap_or_default(),
        saga.attempts.to_string(),
        saga.created_at.to_string(),
        next,
        saga.last_error.clone().unwrap_or_default(),
    ]
}

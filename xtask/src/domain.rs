//! `domain`: lists the renewals that organizations have not paid. For operators.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use domains::{ChargeRecord, ChargeRepository as _};

use crate::setting::DatabaseArgs;
use crate::table;

pub type Args = DatabaseArgs<Command>;

#[derive(Subcommand)]
pub enum Command {
    /// List the renewals that organizations have not paid, oldest first
    Unpaid {
        /// The maximum number of renewals
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
    },
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let store = args.database.store().await?;
    let Command::Unpaid { limit } = args.command;
    let renewals = store.connection().await?.charges_unpaid(limit.into()).await?;
    let head = ["found", "domain", "org", "renewed until", "cents", "state"];
    table::print(head, renewals.iter().map(row), limit.into())?;
    Ok(ExitCode::SUCCESS)
}

fn row(renewal: &ChargeRecord) -> [String; 6] {
    let ChargeRecord { created_at, name, org, renewed_until, cents, state, .. } = renewal;
    let renewed_until = renewed_until.map_or_else(|| "-".to_owned(), |at| at.to_string());
    [created_at.to_string(), name.clone(), org.to_string(), renewed_until, cents.to_string(), state.to_string()]
}

//! `oauth-key`: lists and rotates the keys that sign access tokens. For operators.

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use kernel::audit::Actor;
use kernel::{ClockRng, SigningKeyId, Time};
use oauth::{KeySet, SigningKeys};
use serde_json::{Value, json};

use crate::output::out;
use crate::setting::DatabaseArgs;

pub type Args = DatabaseArgs<Command>;

#[derive(Subcommand)]
pub enum Command {
    /// List the published keys, newest first
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Publish a new key, which signs two minutes later; the old key stays until its tokens have expired
    Rotate,
    /// Remove a key immediately, because others may know it: the tokens that it signed become invalid
    Retire { key: SigningKeyId },
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let keys = args.database.keys()?;
    let signing_keys = SigningKeys::new(args.database.store_with(keys).await?);
    let (set, json) = match args.command {
        Command::List { json } => (signing_keys.list().await?, json),
        Command::Rotate => (signing_keys.rotate(&Actor::operator("xtask oauth-key rotate")).await?, false),
        Command::Retire { key } => (signing_keys.retire(&Actor::operator("xtask oauth-key retire"), key).await?, false),
    };
    print(&set, ClockRng::system().now(), json)?;
    Ok(ExitCode::SUCCESS)
}

fn print(set: &KeySet, now: Time, json: bool) -> io::Result<()> {
    let current = set.current(now).map(|key| key.id);
    let rows: Vec<Value> = set
        .published(now)
        .map(|key| {
            let state = match key.id {
                id if Some(id) == current => "signing",
                _ if key.signs_from > now => "published",
                _ => "retiring",
            };
            json!({ "kid": key.id, "state": state, "createdAt": key.created_at, "signsFrom": key.signs_from,
                "signsUntil": key.signs_until, "retiresAt": key.retires_at() })
        })
        .collect();
    if json {
        return out!("{}", Value::Array(rows));
    }
    for row in rows {
        let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or("-").to_owned();
        let (kid, state) = (text("kid"), text("state"));
        out!("{kid}  {state:<9}  signs from {}  retires at {}", text("signsFrom"), text("retiresAt"))?;
    }
    Ok(())
}

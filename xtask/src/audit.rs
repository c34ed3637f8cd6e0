//! `audit`: lists audit events of all organizations and accounts. For operators.

use std::process::ExitCode;

use anyhow::Result;
use kernel::{Time, UserId};
use store::{AuditQuery, AuditRecord};

use crate::org::OrgRef;
use crate::output::out;
use crate::setting::Database;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    database: Database,
    /// Only events with this name, such as oauth.grant.create
    #[arg(long)]
    event: Option<String>,
    /// Only events of this user: as the actor, or about the user's account
    #[arg(long, value_name = "USER")]
    user: Option<UserId>,
    /// Only events of this organization: its slug or id
    #[arg(long, value_name = "ORG")]
    org: Option<OrgRef>,
    /// Only events at this time or later (RFC 3339)
    #[arg(long, value_name = "TIME")]
    since: Option<Time>,
    /// The maximum number of events
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Print a JSON object per line
    #[arg(long)]
    json: bool,
}

/// Prints the newest events, newest first.
pub async fn run(args: Args) -> Result<ExitCode> {
    let Args { database, event, user, org, since, limit, json } = args;
    let store = database.store().await?;
    let org = match org {
        Some(org) => Some(org.resolve(&store).await?),
        None => None,
    };
    let query = AuditQuery { event, user, org, since };
    for record in store.audit_events(&query, limit.into()).await? {
        if json {
            out!("{}", serde_json::to_string(&record)?)?;
            continue;
        }
        let AuditRecord { event, actor_id, credential, target, data, created_at, .. } = record;
        let actor = actor_id.map_or_else(|| "-".to_owned(), |user| user.to_string());
        out!("{created_at}  {event}  {actor}  {credential}  {target}  {data}")?;
    }
    Ok(ExitCode::SUCCESS)
}

//! `billing`: lists the events of the payments provider that belong to no known organization, corrects AI credit, and
//! ends automatic top-ups whose event had no effect. For operators.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use billing::{Adjustments, TopUpRecord, TopUpRepository as _, UnassignedEvent, WebhookRepository as _};
use clap::Subcommand;
use kernel::audit::Actor;
use serde_json::json;
use store::Store;
use uuid::Uuid;

use crate::org::OrgRef;
use crate::output::out;
use crate::setting::DatabaseArgs;
use crate::table;

pub type Args = DatabaseArgs<Command>;

#[derive(Subcommand)]
pub enum Command {
    /// List the events of unknown organizations, newest first
    Events {
        /// The maximum number of events
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
        /// Print a JSON object per line, with the body as it was received
        #[arg(long)]
        json: bool,
    },
    /// Correct the AI credit of an organization, for example after a refund
    Adjust {
        /// The slug or the id of the organization
        org: OrgRef,
        /// The amount in microcents, negative to take credit back. A cent is 1,000,000 microcents
        #[arg(value_name = "MICROCENTS", allow_negative_numbers = true)]
        micro_cents: i64,
        /// The reason, which the audit log of the organization shows
        #[arg(long, value_parser = parse_reason)]
        reason: String,
    },
    /// List the automatic top-ups that were charged and not credited, oldest first
    Topups {
        /// The maximum number of top-ups
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
    },
    /// End a charged top-up, and add its amount to the AI credit
    CreditTopup {
        id: Uuid,
        /// The reason, which the audit log of the organization shows
        #[arg(long, value_parser = parse_reason)]
        reason: String,
    },
    /// End a charged top-up without credit, for example because its order was refunded
    VoidTopup {
        id: Uuid,
        /// The reason, which the audit log of the organization shows
        #[arg(long, value_parser = parse_reason)]
        reason: String,
    },
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let store = args.database.store().await?;
    match args.command {
        Command::Events { limit, json } => {
            let events = store.connection().await?.unassigned_list(limit.into()).await?;
            if json {
                events.iter().try_for_each(|event| out!("{}", document(event)))?;
            } else {
                let head = ["received", "webhook id", "event", "organization"];
                table::print(head, events.iter().map(row), limit.into())?;
            }
        }
        Command::Adjust { org, micro_cents, reason } => {
            let (actor, org) = (Actor::operator("xtask billing adjust"), org.resolve(&store).await?);
            let balance = Adjustments::new(store).adjust(&actor, org, micro_cents, &reason).await?;
            out!("the balance of {org} is {balance} microcents")?;
        }
        Command::Topups { limit } => {
            let topups = store.connection().await?.topup_list_charged(limit.into()).await?;
            let head = ["id", "organization", "microcents", "order", "created"];
            table::print(head, topups.iter().map(topup_row), limit.into())?;
        }
        Command::CreditTopup { id, reason } => {
            let actor = Actor::operator("xtask billing credit-topup");
            end_topup(store, &actor, id, true, &reason).await?;
        }
        Command::VoidTopup { id, reason } => {
            let actor = Actor::operator("xtask billing void-topup");
            end_topup(store, &actor, id, false, &reason).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn end_topup(store: Store, actor: &Actor, id: Uuid, is_credited: bool, reason: &str) -> Result<()> {
    Adjustments::new(store).end_topup(actor, id, is_credited, reason).await?;
    out!("ended the top-up {id} {}", if is_credited { "with credit" } else { "without credit" })?;
    Ok(())
}

fn parse_reason(text: &str) -> Result<String> {
    let is_valid = (1..=500).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    ensure!(is_valid, "must have 1 to 500 characters, without control characters");
    Ok(text.to_owned())
}

/// Returns the row of an event. The body contains personal data, so only the JSON form shows it.
fn row(event: &UnassignedEvent) -> [String; 4] {
    let UnassignedEvent { webhook_id, kind, organization, received_at, .. } = event;
    // The provider and its customers chose these texts, so control characters are escaped.
    let escape = |text: &str| text.escape_debug().to_string();
    let organization = organization.as_deref().unwrap_or("-");
    [received_at.to_string(), escape(webhook_id), escape(kind), escape(organization)]
}

fn topup_row(topup: &TopUpRecord) -> [String; 5] {
    let TopUpRecord { id, org, amount_micro_cents, order_id, created_at, .. } = topup;
    // The provider chose the id of the order.
    let order = order_id.as_deref().unwrap_or("-").escape_debug().to_string();
    [id.to_string(), org.to_string(), amount_micro_cents.to_string(), order, created_at.to_string()]
}

fn document(event: &UnassignedEvent) -> String {
    let UnassignedEvent { webhook_id, kind, organization, body, received_at } = event;
    json!({ "webhookId": webhook_id, "event": kind, "organization": organization, "receivedAt": received_at, "body": body })
        .to_string()
}

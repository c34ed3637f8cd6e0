//! `svc billing`: the plan of an organization.

use client::types::{BillingStatus, Cancellation, NewCheckout, NewPortalVisit, Plan, PlanLimits, SubscriptionStatus};
use client::{Client, Error};

use crate::checkout::{PurchaseArgs, return_to, visit, warn_of_sandbox};
use crate::error::CliError;
use crate::money::dollars;
use crate::output::{bytes, fields, or_dash, table};
use crate::prompt;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Billing {
    /// Show the plan of the organization, and the limits of both plans
    Status,
    /// Buy the pro plan: opens the checkout in the browser, and waits for the payment
    Upgrade(PurchaseArgs),
    /// Open the portal of the payments provider: payment method, receipts, cancellation
    Portal {
        /// Print the URL of the portal without opening it
        #[arg(long)]
        no_browser: bool,
    },
    /// End the pro plan at the end of the paid period
    Cancel {
        /// Continue a plan that was cancelled and has not ended yet
        #[arg(long, conflicts_with = "yes")]
        undo: bool,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

impl Billing {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let org = svc.org()?;
        let client = svc.client()?;
        match self {
            Self::Status => {
                let status = client.billing_get(&org).send().await?;
                svc.out.response(&status, show)?;
                if status.status == Some(SubscriptionStatus::PastDue) {
                    svc.out.warn("the last payment failed: check the payment method with `svc billing portal`");
                }
                Ok(())
            }
            Self::Upgrade(purchase) => upgrade(svc, (&client, &org), purchase).await,
            Self::Portal { no_browser } => {
                let portal = match client.billing_open_portal(&org, &NewPortalVisit { return_to: None }).send().await {
                    Ok(portal) => portal,
                    Err(error) => return Err(explain_not_found(error, (&client, &org)).await),
                };
                visit(svc, &portal, "portal", no_browser)
            }
            Self::Cancel { undo, yes } => cancel(svc, (&client, &org), undo, yes).await,
        }
    }
}

/// Starts the purchase, and waits until the plan is pro.
async fn upgrade(svc: &Svc<'_>, (client, org): (&Client, &str), purchase: PurchaseArgs) -> Result<(), CliError> {
    let checkout = client.billing_check_out(org, &NewCheckout { return_to: return_to(client).await? }).send().await?;
    warn_of_sandbox(svc, client, org).await?;
    let get = async || client.billing_get(org).send().await;
    if let Some(status) = purchase.pay(svc, &checkout, get, |status| status.plan == Plan::Pro).await? {
        svc.out.response(&status, show)?;
        svc.out.success(format!("{org} has the pro plan"));
    }
    Ok(())
}

/// Distinguishes two causes of the same status: an organization that never paid, and one that does not exist.
async fn explain_not_found(error: Error, (client, org): (&Client, &str)) -> CliError {
    let exists = error.status() == Some(404) && client.billing_get(org).send().await.is_ok();
    if exists {
        CliError::Explained(error, "`svc billing upgrade` buys the pro plan, and `svc ai credit buy` buys AI credit")
    } else {
        error.into()
    }
}

async fn cancel(svc: &Svc<'_>, (client, org): (&Client, &str), undo: bool, yes: bool) -> Result<(), CliError> {
    prompt::require_yes(undo || yes, &format!("End the pro plan of {org} at the end of the paid period?"), "changed")?;
    let status = client.billing_cancel(org, &Cancellation { cancel: !undo }).send().await?;
    svc.out.response(&status, show)?;
    svc.out.success(match (undo, &status.period_end) {
        (true, _) => format!("the pro plan of {org} continues"),
        (false, Some(end)) => {
            format!("the pro plan of {org} ends at {end}; until then `svc billing cancel --undo` reverts this")
        }
        (false, None) => {
            format!("the pro plan of {org} ends with its period; until then `svc billing cancel --undo` reverts this")
        }
    });
    Ok(())
}

fn show(status: &BillingStatus) -> String {
    let BillingStatus { enabled, sandbox, plan, status, period_end, cancel_at_period_end, limits } = status;
    let billing = match (enabled, sandbox) {
        (false, _) => "off",
        (true, true) => "on, in a test environment without real charges",
        (true, false) => "on",
    };
    let then = match status {
        Some(SubscriptionStatus::Active | SubscriptionStatus::PastDue) if *cancel_at_period_end => {
            ", then the plan ends"
        }
        Some(SubscriptionStatus::Active) => ", then it renews",
        _ => "",
    };
    let period_end = period_end.as_ref().map(|end| format!("{end}{then}"));
    let rows = fields(&[
        ["plan", plan.as_str()],
        ["status", &or_dash(status.as_ref().map(SubscriptionStatus::as_str))],
        ["period end", &or_dash(period_end.as_deref())],
        ["billing", billing],
    ]);
    let limits = limit_rows(&limits.free).into_iter().zip(limit_rows(&limits.pro));
    let limits = limits.map(|((name, free), (_, pro))| [name.to_owned(), free, pro]);
    format!("{rows}\n\n{}", table(["LIMIT", "FREE", "PRO"], limits))
}

/// Returns the names and values of the limits of a plan.
fn limit_rows(limits: &PlanLimits) -> [(&'static str, String); 15] {
    [
        ("projects", limits.projects.to_string()),
        ("bundle, packed", bytes(limits.bundle_bytes)),
        ("bundle, unpacked", bytes(limits.bundle_unpacked_bytes)),
        ("bundle, entries", limits.bundle_entries.to_string()),
        ("custom hostnames per project", limits.custom_hostnames.to_string()),
        ("storage per project", bytes(limits.storage_bytes)),
        ("database per project", bytes(limits.database_bytes)),
        ("database tokens per project", limits.database_tokens.to_string()),
        ("days of backups", limits.backup_days.to_string()),
        ("zones", limits.zones.to_string()),
        ("size of a zone", bytes(limits.zone_bytes)),
        ("mails per project and hour", limits.mails_per_hour.to_string()),
        ("days of the mail log", limits.mail_log_days.to_string()),
        ("AI calls per project and minute", limits.ai_requests_per_minute.to_string()),
        ("AI spend per project and day", dollars(limits.ai_spend_per_day_micro_cents)),
    ]
}

//! `svc ai`: AI models of a project, and the credit of its organization.

use std::cell::Cell;

use client::types::{
    AiCredit, AiListLedgerQuery, AiModel, AiStatus, AutoTopup, AutoTopupChange, LedgerKind, LedgerPage, LedgerRow,
    NewCreditCheckout,
};
use client::{Client, Error, Response};

use crate::checkout::{PurchaseArgs, return_to, warn_of_sandbox};
use crate::error::CliError;
use crate::money::{Dollars, dollars};
use crate::output::{fields, or_dash, table, yes_or_no};
use crate::resources::is_insufficient_scope;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Ai {
    /// Show whether AI is enabled for the project, its limits and its usage
    Status,
    /// Enable AI models, which worker code calls as env.ai
    Enable,
    /// Disable AI models
    Disable,
    /// List the models and their prices
    Models,
    /// Show the credit of the organization, or buy more
    Credit {
        #[command(subcommand)]
        command: Option<Credit>,
    },
    /// Show the automatic top-up of the credit, or change it
    Topup {
        #[command(subcommand)]
        command: Option<TopUp>,
    },
    /// List the changes of the credit, newest first: each call and each payment
    Ledger {
        /// Number of rows
        #[arg(long)]
        limit: Option<i64>,
        /// List only rows with a smaller ID
        #[arg(long, value_name = "ID")]
        before: Option<i64>,
    },
}

#[derive(clap::Subcommand)]
pub enum Credit {
    /// Buy credit: opens the checkout in the browser, and waits for the payment
    Buy {
        /// The amount in dollars; `svc ai credit` lists the amounts that are sold
        #[arg(value_name = "DOLLARS")]
        amount: Dollars,
        #[command(flatten)]
        purchase: PurchaseArgs,
    },
}

#[derive(clap::Subcommand)]
pub enum TopUp {
    /// Buy credit with the saved payment method whenever the balance falls below an amount
    On {
        /// The amount of each top-up, in dollars
        #[arg(long, value_name = "DOLLARS")]
        amount: Dollars,
        /// The balance below which it is bought, in dollars
        #[arg(long, value_name = "DOLLARS")]
        below: Dollars,
    },
    /// Turn the automatic top-up off
    Off,
}

impl Ai {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let client = svc.client()?;
        match self {
            Self::Status => {
                let (org, project) = svc.project()?;
                svc.out.response(&client.ai_get(&org, &project).send().await?, show_status)
            }
            Self::Enable => {
                let (org, project) = svc.project()?;
                let status = client.ai_grant(&org, &project).send().await?;
                svc.out.response(&status, show_status)?;
                svc.out.success("enabled AI: worker code uses it as env.ai if svc.json declares \"ai\": true");
                if status.balance_micro_cents <= 0 {
                    svc.out.warn("the organization has no credit, so calls fail: buy some with `svc ai credit buy`");
                }
                Ok(())
            }
            Self::Disable => {
                let (org, project) = svc.project()?;
                let revoked = client.ai_revoke(&org, &project).send().await?;
                svc.out.empty_response(&revoked, "disabled AI: the credit of the organization is kept")
            }
            Self::Models => svc.out.response(&client.ai_models().send().await?, |catalog| show_models(&catalog.models)),
            Self::Credit { command: None } => {
                svc.out.response(&client.ai_get_credit(&svc.org()?).send().await?, show_credit)
            }
            Self::Credit { command: Some(Credit::Buy { amount, purchase }) } => {
                buy(svc, (&client, &svc.org()?), amount, purchase).await
            }
            Self::Topup { command: None } => {
                svc.out.response(&client.ai_get_credit(&svc.org()?).send().await?, show_topup)
            }
            Self::Topup { command: Some(TopUp::On { amount, below }) } => {
                let org = svc.org()?;
                check_amount((&client, &org), amount).await?;
                if !(1..amount.micro_cents).contains(&below.micro_cents) {
                    return Err(CliError::Usage("--below must be more than $0 and less than --amount".to_owned()));
                }
                let change = AutoTopupChange {
                    enabled: true,
                    amount_micro_cents: Some(amount.micro_cents),
                    threshold_micro_cents: Some(below.micro_cents),
                };
                change_topup(svc, (&client, &org), &change).await
            }
            Self::Topup { command: Some(TopUp::Off) } => {
                let change = AutoTopupChange { enabled: false, amount_micro_cents: None, threshold_micro_cents: None };
                change_topup(svc, (&client, &svc.org()?), &change).await
            }
            Self::Ledger { limit, before } => list_ledger(svc, (&client, &svc.org()?), limit, before).await,
        }
    }
}

/// Fails unless the amount is sold. The error of the API is in microcents. Checks nothing if the token may not read the
/// amounts.
async fn check_amount((client, org): (&Client, &str), amount: Dollars) -> Result<(), CliError> {
    let credit = match client.ai_get_credit(org).send().await {
        Err(error) if is_insufficient_scope(&error) => return Ok(()),
        credit => credit?,
    };
    if credit.tiers_micro_cents.contains(&amount.micro_cents) {
        return Ok(());
    }
    Err(CliError::Usage(format!("the amount must be one of {}", sold_amounts(&credit))))
}

/// Starts the purchase of credit, and waits until it is in the balance.
async fn buy(
    svc: &Svc<'_>,
    (client, org): (&Client, &str),
    amount: Dollars,
    purchase: PurchaseArgs,
) -> Result<(), CliError> {
    check_amount((client, org), amount).await?;
    let newest = AiListLedgerQuery { limit: Some(1), before: None };
    let last = client.ai_list_ledger(org, &newest).send().await?.items.first().map_or(0, |row| row.ledger_id);
    let request = NewCreditCheckout { micro_cents: amount.micro_cents, return_to: return_to(client).await? };
    let checkout = client.ai_check_out_credit(org, &request).send().await?;
    warn_of_sandbox(svc, client, org).await?;
    // Calls of AI models change the balance at the same time, so only the ledger shows whether the payment has arrived.
    let seen = Cell::new(last);
    let is_payment = |row: &LedgerRow| {
        row.ledger_id > last
            && row.kind == LedgerKind::Topup
            && is_credit_of(amount.micro_cents, row.amount_micro_cents)
    };
    let added = |page: &LedgerPage| -> Vec<i64> {
        page.items.iter().filter(|row| is_payment(row)).map(|row| row.amount_micro_cents).collect()
    };
    let get = async || {
        let page = list_ledger_after((client, org), seen.get()).await?;
        seen.set(page.items.first().map_or(seen.get(), |row| row.ledger_id));
        Ok::<_, Error>(page)
    };
    let paid = purchase.pay(svc, &checkout, get, |page| !added(page).is_empty()).await?;
    if let Some(page) = paid {
        svc.out.response(&client.ai_get_credit(org).send().await?, show_credit)?;
        let price = dollars(amount.micro_cents);
        svc.out.success(match added(&page)[..] {
            [credit] => format!("{org} bought {} of credit for {price}", dollars(credit)),
            _ => format!("{org} bought credit for {price}"),
        });
    }
    Ok(())
}

/// Returns the rows of the ledger after the row `seen`, and some before it.
async fn list_ledger_after((client, org): (&Client, &str), seen: i64) -> Result<Response<LedgerPage>, Error> {
    let mut query = AiListLedgerQuery { limit: Some(200), before: None };
    let mut page = client.ai_list_ledger(org, &query).send().await?;
    while page.next_before.is_some_and(|before| before > seen) {
        query.before = page.next_before;
        let LedgerPage { items, next_before } = client.ai_list_ledger(org, &query).send().await?.value;
        page.value.items.extend(items);
        page.value.next_before = next_before;
    }
    Ok(page)
}

/// Returns whether a payment of this price can have added this credit, which is less if the price includes tax. Each
/// amount that is sold is at least twice the next smaller one, so with any tax below 100%, only one amount matches. A row
/// of the ledger names no order, so another payment of the same amount matches too.
fn is_credit_of(price: i64, credit: i64) -> bool {
    price / 2 < credit && credit <= price
}

async fn change_topup(svc: &Svc<'_>, (client, org): (&Client, &str), change: &AutoTopupChange) -> Result<(), CliError> {
    let changed = client.ai_set_auto_topup(org, change).send().await?;
    let text = if change.enabled { "turned the automatic top-up on" } else { "turned the automatic top-up off" };
    svc.out.json_only(&changed.json)?;
    svc.out.success(text);
    Ok(())
}

async fn list_ledger(
    svc: &Svc<'_>,
    (client, org): (&Client, &str),
    limit: Option<i64>,
    before: Option<i64>,
) -> Result<(), CliError> {
    let page = client.ai_list_ledger(org, &AiListLedgerQuery { limit, before }).send().await?;
    svc.out.response(&page, |page| {
        let rows = page.items.iter().map(|row| {
            let tokens = |count: Option<i64>| {
                let estimated = if row.estimated { "~" } else { "" };
                or_dash(count.map(|count| format!("{estimated}{count}")).as_deref())
            };
            [
                row.ledger_id.to_string(),
                row.created_at.clone(),
                row.kind.as_str().to_owned(),
                dollars(row.amount_micro_cents),
                dollars(row.balance_micro_cents),
                or_dash(row.project.as_deref()),
                or_dash(row.model.as_deref()),
                tokens(row.input_tokens),
                tokens(row.output_tokens),
            ]
        });
        table(["ID", "TIME", "KIND", "AMOUNT", "BALANCE", "PROJECT", "MODEL", "INPUT", "OUTPUT"], rows)
    })?;
    if let Some(before) = page.next_before {
        svc.out.info(format!("More rows: --before {before}"));
    }
    Ok(())
}

fn show_status(status: &AiStatus) -> String {
    let AiStatus { granted, balance_micro_cents, limits, spent_micro_cents24h, usage24h } = status;
    let spend =
        format!("{} of {} in 24 hours", dollars(*spent_micro_cents24h), dollars(limits.spend_per_day_micro_cents));
    let usage = format!(
        "{} calls, {} input and {} output tokens in 24 hours",
        usage24h.calls, usage24h.input_tokens, usage24h.output_tokens
    );
    fields(&[
        ["enabled", yes_or_no(*granted)],
        ["credit", &dollars(*balance_micro_cents)],
        ["spent", &spend],
        ["usage", &usage],
        ["limit", &format!("{} calls per minute", limits.requests_per_minute)],
    ])
}

fn show_models(models: &[AiModel]) -> String {
    let rows = models.iter().map(|model| {
        [
            model.id.clone(),
            model.lane.as_str().to_owned(),
            dollars(model.input_micro_cents_per_m_tok),
            dollars(model.output_micro_cents_per_m_tok),
            model.context_tokens.to_string(),
        ]
    });
    table(["MODEL", "LANE", "INPUT PER M", "OUTPUT PER M", "CONTEXT"], rows)
}

fn sold_amounts(credit: &AiCredit) -> String {
    credit.tiers_micro_cents.iter().copied().map(dollars).collect::<Vec<_>>().join(", ")
}

fn show_credit(credit: &AiCredit) -> String {
    fields(&[
        ["credit", &dollars(credit.balance_micro_cents)],
        ["sold", &sold_amounts(credit)],
        ["top-up", &topup_text(&credit.auto_topup)],
    ])
}

fn show_topup(credit: &AiCredit) -> String {
    let today = format!("{} of {}", credit.auto_topups_today, credit.auto_topup_per_day);
    let none = "none: `svc billing portal` saves one after a first purchase";
    fields(&[
        ["top-up", &topup_text(&credit.auto_topup)],
        ["today", &today],
        ["payment method", if credit.has_payment_method { "saved" } else { none }],
    ])
}

fn topup_text(topup: &AutoTopup) -> String {
    match (topup.enabled, topup.amount_micro_cents, topup.threshold_micro_cents) {
        (true, Some(amount), Some(threshold)) => {
            format!("{} when the credit falls below {}", dollars(amount), dollars(threshold))
        }
        _ => "off".to_owned(),
    }
}

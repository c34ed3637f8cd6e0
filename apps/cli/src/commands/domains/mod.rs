//! `svc domains`: the domains of an organization.

mod buy;
mod contact;

use std::ops::RangeInclusive;

use client::types::{
    Domain, DomainAutoRenew, DomainCheck, DomainDetail, DomainImport, DomainLock, DomainOffer, DomainOffers,
    DomainRenewal, DomainState,
};
use client::{Client, Method, Response};
use serde_json::Value;

use self::buy::Purchase;
use crate::error::CliError;
use crate::money::from_cents;
use crate::options::PageArgs;
use crate::output::{fields, or_dash, table, yes_or_no};
use crate::prompt;
use crate::svc::Svc;

/// The years of a purchase or a renewal.
const YEARS: RangeInclusive<i64> = 1..=10;

#[derive(clap::Subcommand)]
pub enum Domains {
    /// Show the availability and the prices of names
    Check {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Buy a domain: shows the price, and asks for confirmation and the contact
    Buy(Purchase),
    /// Import a domain that is registered elsewhere: creates its zone
    Import { name: String },
    /// List the domains of the organization, newest first
    List(PageArgs),
    /// Show a domain and its last changes
    Show { name: String },
    /// Renew a domain, and charge the saved payment method. The same command within 24 hours does not renew it again
    Renew {
        name: String,
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(YEARS))]
        years: i32,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Lock a domain against transfers to other registrars
    Lock { name: String },
    /// Allow transfers of a domain to other registrars
    Unlock { name: String },
    /// Set whether the organization wants automatic renewals of a domain and pays for them
    AutoRenew {
        name: String,
        switch: Switch,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Print the code for a transfer to another registrar
    AuthCode { name: String },
    /// Read expiry, lock and nameservers of a domain at the registrar
    Sync { name: String },
}

/// An argument that turns something on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    On,
    Off,
}

impl Domains {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let org = svc.org()?;
        let client = svc.client()?;
        let domain = match self {
            Self::Check { names } => return check(svc, (&client, &org), names).await,
            Self::Buy(purchase) => return purchase.run(svc, (&client, &org)).await,
            Self::List(page) => {
                let page = client.domains_list(&org, &page.paging()).send().await?;
                return svc.out.page(&page, ["NAME", "STATE", "EXPIRES", "LOCKED", "AUTO-RENEW"], |it| {
                    let expires = it.expires_at.as_ref().map(ToString::to_string);
                    let locked = it.locked.map(yes_or_no);
                    [
                        it.name.clone(),
                        it.state.to_string(),
                        or_dash(expires.as_deref()),
                        or_dash(locked),
                        auto_renewal(&it.state, it.auto_renew),
                    ]
                });
            }
            Self::Show { name } => {
                let detail = client.domains_get(&org, &name).send().await?;
                svc.out.response(&detail, show_detail)?;
                if detail.unpaid_cents > 0 {
                    let cents = from_cents(detail.unpaid_cents);
                    svc.out.info(format!("Unpaid renewals are charged before the next renewal: {cents}"));
                }
                return Ok(());
            }
            Self::AuthCode { name } => {
                let code = client.domains_create_auth_code(&org, &name).send().await?;
                svc.out.response(&code, |code| code.auth_code.clone())?;
                if let Some(at) = &code.transferable_at {
                    svc.out.info(format!("The registry refuses transfers of {name} until {at}"));
                }
                return Ok(());
            }
            Self::Import { name } => {
                let imported = client.domains_import(&org, &DomainImport { name }).send().await?;
                svc.out.response(&imported, show)?;
                if imported.state == DomainState::External {
                    svc.out.info(
                        "Set these nameservers at the registrar of the domain. Then its records are managed here.",
                    );
                } else {
                    svc.out.success(format!("{org} has {} already", imported.name));
                }
                return Ok(());
            }
            Self::Renew { name, years, yes } => {
                // The domain can be renewed, even if its price cannot be read.
                if let Ok(detail) = client.domains_get(&org, &name).send().await {
                    show_price(svc, &detail, years);
                }
                let question = format!("Renew {name} for {}, and charge the saved payment method?", count_years(years));
                prompt::require_yes(yes, &question, "renewed")?;
                return renew(svc, (&client, &org), (&name, years)).await;
            }
            Self::Lock { name } => client.domains_set_lock(&org, &name, &DomainLock { locked: true }).send().await?,
            Self::Unlock { name } => client.domains_set_lock(&org, &name, &DomainLock { locked: false }).send().await?,
            Self::AutoRenew { name, switch, yes } => {
                let unbilled = match switch {
                    Switch::On => unbilled_cents((&client, &org), &name, yes).await?,
                    Switch::Off => 0,
                };
                if unbilled > 0 {
                    let price = from_cents(unbilled);
                    svc.out.info(format!("{name} was renewed while automatic renewal was off, for {price}"));
                    let question = format!("Turn automatic renewal of {name} on, and charge {price}?");
                    prompt::require_yes(yes, &question, "changed")?;
                }
                let change = DomainAutoRenew { enabled: switch == Switch::On };
                let changed = client.domains_set_auto_renew(&org, &name, &change).send().await?;
                if is_registered_elsewhere(&changed.state) {
                    let text = "is registered elsewhere, so the setting has no effect: renew it at its registrar";
                    svc.out.warn(format!("{name} {text}"));
                }
                changed
            }
            Self::Sync { name } => client.domains_sync(&org, &name).send().await?,
        };
        svc.out.response(&domain, show)
    }
}

/// Checks names at the registrar. Without a registrar, the organization can only import domains.
async fn check_names(client: &Client, org: &str, names: Vec<String>) -> Result<Response<DomainOffers>, CliError> {
    client.domains_check(org, &DomainCheck { names }).send().await.map_err(|error| {
        if error.code() == Some("registrar_not_configured") {
            CliError::Explained(error, "`svc domains import` manages a domain that is registered elsewhere")
        } else {
            error.into()
        }
    })
}

async fn check(svc: &Svc<'_>, (client, org): (&Client, &str), names: Vec<String>) -> Result<(), CliError> {
    let offers = check_names(client, org, names).await?;
    svc.out.response(&offers, |offers| {
        let head = ["NAME", "AVAILABLE", "FIRST YEAR", "RENEWAL", "NOTE"];
        table(head, offers.results.iter().map(offer_row))
    })
}

fn offer_row(offer: &DomainOffer) -> [String; 5] {
    let price = |cents: Option<i64>| or_dash(cents.map(from_cents).as_deref());
    let reason = offer.reason.as_ref().map(ToString::to_string);
    let note = if offer.premium { Some("premium".to_owned()) } else { reason };
    let available = yes_or_no(offer.available).to_owned();
    [offer.name.clone(), available, price(offer.price_cents), price(offer.renewal_cents), or_dash(note.as_deref())]
}

async fn renew(svc: &Svc<'_>, (client, org): (&Client, &str), (name, years): (&str, i32)) -> Result<(), CliError> {
    // Without an `Idempotency-Key`, the API does not renew the domain again if the user repeats the command.
    let path = ["v1", "orgs", org, "domains", name, "renew"];
    let renewal = client.call::<Domain>(Method::POST, &path).json(&DomainRenewal { years });
    svc.out.response(&renewal.send().await?, show)?;
    // The domain is renewed, even if its history cannot be read.
    if let Ok(detail) = client.domains_get(org, name).send().await
        && let Some(renewal) = last_renewal(&detail)
    {
        svc.out.info(renewal);
    }
    svc.out.info(format!("If its payment is declined, `svc notifications` and `svc domains show {name}` show it."));
    Ok(())
}

/// Returns the sum that turning automatic renewal on charges. With `--yes`, returns zero if the domain cannot be read,
/// because the user has confirmed every sum.
async fn unbilled_cents((client, org): (&Client, &str), name: &str, yes: bool) -> Result<i64, CliError> {
    match client.domains_get(org, name).send().await {
        Ok(detail) => Ok(detail.unbilled_cents),
        Err(_) if yes => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Prints the price of a renewal, and the sum of the unpaid renewals that are charged with it.
fn show_price(svc: &Svc<'_>, detail: &DomainDetail, years: i32) {
    let DomainDetail { name, renewal_cents, unpaid_cents, .. } = detail;
    if let Some(cents) = renewal_cents {
        let total = from_cents(cents.saturating_mul(i64::from(years)));
        svc.out.info(format!("A renewal of {name} for {} costs {total}", count_years(years)));
    }
    if *unpaid_cents > 0 {
        svc.out.info(format!("Unpaid renewals are charged first: {}", from_cents(*unpaid_cents)));
    }
}

/// Returns a sentence about the latest renewal in the history of a domain.
fn last_renewal(detail: &DomainDetail) -> Option<String> {
    let renewal = detail.history.iter().find(|change| change.event == "domain.renew")?;
    let number = |name: &str| renewal.data.get(name).and_then(Value::as_i64);
    let (name, at) = (&detail.name, &renewal.at);
    let years = count_years(i32::try_from(number("years")?).ok()?);
    let price = from_cents(number("priceCents")?);
    Some(format!("{name} was last renewed at {at}, for {years}. The price is {price}."))
}

/// Returns whether the domain is renewed automatically. The setting has no effect on a domain that is registered
/// elsewhere.
fn auto_renewal(state: &DomainState, enabled: bool) -> String {
    or_dash(Some(yes_or_no(enabled)).filter(|_| !is_registered_elsewhere(state)))
}

fn is_registered_elsewhere(state: &DomainState) -> bool {
    matches!(state, DomainState::External | DomainState::TransferredOut)
}

fn show(domain: &Domain) -> String {
    let Domain {
        name,
        state,
        expires_at,
        locked,
        nameservers,
        auto_renew,
        transferable_at,
        registered_at,
        created_at: _,
    } = domain;
    let time = |time: &Option<client::types::Time>| or_dash(time.as_ref().map(ToString::to_string).as_deref());
    let auto_renew = auto_renewal(state, *auto_renew);
    let state = match state {
        DomainState::External => "external: registered elsewhere".to_owned(),
        state => state.to_string(),
    };
    fields(&[
        ["name", name],
        ["state", &state],
        ["registered", &time(registered_at)],
        ["expires", &time(expires_at)],
        ["auto-renew", &auto_renew],
        ["locked", &or_dash(locked.map(yes_or_no))],
        ["transferable", &time(transferable_at)],
        ["nameservers", &nameservers.join(", ")],
    ])
}

fn show_detail(detail: &DomainDetail) -> String {
    let history = detail.history.iter().map(|change| {
        let data = Value::from(change.data.clone()).to_string();
        [change.at.to_string(), change.event.clone(), or_dash(change.actor.as_deref()), data]
    });
    format!("{}\n\n{}", show(&without_history(detail)), table(["AT", "EVENT", "ACTOR", "DATA"], history))
}

fn without_history(detail: &DomainDetail) -> Domain {
    let DomainDetail {
        name,
        state,
        expires_at,
        locked,
        nameservers,
        auto_renew,
        transferable_at,
        registered_at,
        created_at,
        renewal_cents: _,
        unpaid_cents: _,
        unbilled_cents: _,
        history: _,
    } = detail.clone();
    Domain { name, state, expires_at, locked, nameservers, auto_renew, transferable_at, registered_at, created_at }
}

fn count_years(years: i32) -> String {
    if years == 1 { "a year".to_owned() } else { format!("{years} years") }
}

//! `svc domains buy`.

use std::path::PathBuf;

use client::types::{DomainDetail, DomainOffer, DomainPurchase, DomainState};
use client::{Client, Response};

use super::{YEARS, check_names, contact, count_years, show, show_detail};
use crate::checkout::warn_of_sandbox;
use crate::error::CliError;
use crate::money::{Dollars, MICRO_CENTS_PER_CENT, from_cents};
use crate::prompt;
use crate::svc::Svc;

/// The options of a purchase.
#[derive(clap::Args)]
pub struct Purchase {
    name: String,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(YEARS))]
    years: i32,
    /// JSON file with the contact: firstName, lastName, organization, email, phone, street, city, state, postalCode,
    /// country. Without it, svc asks for them
    #[arg(long, value_name = "FILE")]
    contact: Option<PathBuf>,
    /// Do not renew the domain automatically
    #[arg(long)]
    no_auto_renew: bool,
    /// Buy the domain only if it costs at most this amount in all
    #[arg(long, value_name = "DOLLARS")]
    max_price: Option<Dollars>,
    /// Do not ask for confirmation
    #[arg(long, requires = "max_price")]
    yes: bool,
}

impl Purchase {
    pub async fn run(self, svc: &Svc<'_>, (client, org): (&Client, &str)) -> Result<(), CliError> {
        let expected_price_cents = match find(client, org, &self.name).await? {
            // The purchase was started before, so its price is known. The name is not available any more, so a check
            // would reject it.
            Some(domain) if domain.state == DomainState::Registering => {
                svc.out.info(format!("Continuing the purchase of {}", domain.name));
                None
            }
            Some(domain) if matches!(domain.state, DomainState::Active | DomainState::Expired) => {
                svc.out.response(&domain, show_detail)?;
                svc.out.success(format!("{org} has {} already", domain.name));
                return Ok(());
            }
            // An imported domain, or one that was transferred away, can be bought.
            _ => Some(self.agree(svc, (client, org)).await?),
        };
        let contact = contact::read(self.contact.as_deref())?;
        let Self { name, years, no_auto_renew, .. } = self;
        let (years, auto_renew) = (Some(years), Some(!no_auto_renew));
        let purchase = DomainPurchase { name, contact, years, auto_renew, expected_price_cents };
        let domain = client.domains_purchase(org, &purchase).send().await?;
        svc.out.response(&domain, show)?;
        svc.out.success(format!("{org} has {}", domain.name));
        svc.out.info(format!("Connect it to a project with `svc hostnames add www.{}`", domain.name));
        Ok(())
    }

    /// Shows the price, and asks the user to confirm it. Returns it in cents.
    async fn agree(&self, svc: &Svc<'_>, (client, org): (&Client, &str)) -> Result<i64, CliError> {
        let checked = check_names(client, org, vec![self.name.clone()]).await?;
        let offer = checked.value.results.into_iter().next();
        let offer = offer.ok_or_else(|| CliError::Other("the API returned no result for the name".to_owned()))?;
        let total = self.total(&offer)?;
        let name = &offer.name;
        let premium = if offer.premium { ", a premium name," } else { "" };
        let renewal = offer.renewal_cents.map(from_cents).unwrap_or_default();
        let years = count_years(self.years);
        svc.out.info(format!("{name}{premium} costs {} for {years}, and then {renewal} a year", from_cents(total)));
        warn_of_sandbox(svc, client, org).await?;
        if let Some(max) = self.max_price
            && total.saturating_mul(MICRO_CENTS_PER_CENT) > max.micro_cents
        {
            return Err(CliError::Usage("nothing was bought: the price is above --max-price".to_owned()));
        }
        if !self.yes && !prompt::confirm(&format!("Buy {name} for {}?", from_cents(total)))? {
            return Err(CliError::Usage("nothing was bought: confirm with --yes and --max-price".to_owned()));
        }
        Ok(total)
    }

    /// Returns the total price of all years in cents.
    fn total(&self, offer: &DomainOffer) -> Result<i64, CliError> {
        match (offer.price_cents, offer.renewal_cents) {
            (Some(first), Some(renewal)) => {
                Ok(first.saturating_add(i64::from(self.years.saturating_sub(1)).saturating_mul(renewal)))
            }
            _ => Err(CliError::Other(format!("{} is not available", offer.name))),
        }
    }
}

/// Returns the domain, or `None` if the organization does not have it.
async fn find(client: &Client, org: &str, name: &str) -> Result<Option<Response<DomainDetail>>, CliError> {
    match client.domains_get(org, name).send().await {
        Ok(domain) => Ok(Some(domain)),
        // The API also returns 404 if the organization does not exist. The check of the name's availability then fails.
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

//! The pages of the payments provider.

use std::time::Duration;

use client::types::BillingPage;
use client::{Client, Error, Response};

use crate::browser;
use crate::error::CliError;
use crate::polling::poll_until;
use crate::progress::Phases;
use crate::svc::Svc;

/// How long `svc` waits for a payment.
const PAYMENT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The options of a purchase.
#[derive(clap::Args, Clone, Copy)]
pub struct PurchaseArgs {
    /// Print the URL of the checkout without opening it
    #[arg(long)]
    no_browser: bool,
    /// Do not wait for the payment
    #[arg(long)]
    no_wait: bool,
}

impl PurchaseArgs {
    /// Opens a checkout, and polls a resource of the API until it shows the payment. Returns the resource; `None`
    /// without waiting.
    pub async fn pay<T>(
        self,
        svc: &Svc<'_>,
        checkout: &Response<BillingPage>,
        get: impl AsyncFn() -> Result<Response<T>, Error>,
        is_paid: impl FnMut(&T) -> bool,
    ) -> Result<Option<Response<T>>, CliError> {
        if self.no_wait {
            return visit(svc, checkout, "checkout", self.no_browser).map(|()| None);
        }
        let url = &checkout.url;
        if self.no_browser || !browser::open(url) {
            svc.out.info(format!("Open this URL in a browser:\n\n  {url}\n"));
        } else {
            svc.out.info(format!("Opening {url} in your browser"));
        }
        let mut phases = Phases::default();
        phases.show(svc.out, "Waiting for the payment. You can interrupt svc: the purchase continues in the browser");
        let paid = tokio::time::timeout(PAYMENT_TIMEOUT, poll_until(get, is_paid)).await;
        Ok(Some(paid.map_err(|_| CliError::NotPaid)??))
    }
}

/// Prints a notice if the provider is a test environment.
pub async fn warn_of_sandbox(svc: &Svc<'_>, client: &Client, org: &str) -> Result<(), CliError> {
    if client.billing_get(org).send().await?.sandbox {
        svc.out.info("This is a test environment: the payments provider charges no money");
    }
    Ok(())
}

/// Returns the URL to which the browser returns after a payment: a page that every installation has. The base URL of
/// the API has no page.
pub async fn return_to(client: &Client) -> Result<String, CliError> {
    let config = client.service_config().send().await?;
    Ok(format!("{}/docs", config.public_url.trim_end_matches('/')))
}

/// Opens a page, or prints its URL.
pub fn visit(svc: &Svc<'_>, page: &Response<BillingPage>, name: &str, no_browser: bool) -> Result<(), CliError> {
    if no_browser {
        return svc.out.response(page, |page| page.url.clone());
    }
    if !browser::open(&page.url) {
        svc.out.warn("failed to start a browser");
        return svc.out.response(page, |page| page.url.clone());
    }
    svc.out.info(format!("Opening the {name} in your browser"));
    svc.out.json_only(&page.json)
}

//! Domains, with the registrar and the payments provider of the sandbox.

mod contact;
mod kills;
mod managing;
mod outage;
mod purchase;
mod quota;
mod races;
mod refusals;

use kernel::Secret;
use sandbox::{DOMAIN_PRODUCT, PaymentsServer, REGISTRAR_TOKEN, REGISTRAR_USER, RegistrarOperation, RegistrarServer};
use serde_json::{Value, json};
use server::Config;
use server::config::RegistrarConfig;

use crate::billing::{org_id, use_provider};
use crate::support::{ApiResponse, App, Caller};

const DOMAINS: &str = "/v1/orgs/ada/domains";
/// The price of a `.com` name for a year, in cents.
const COM_CENTS: i64 = 1_299;
const NAMESERVERS: [&str; 2] = ["ns1.svc.example", "ns2.svc.example"];

/// A server with a registrar and a payments provider, and Ada with a saved card.
struct Kit {
    app: App,
    registrar: RegistrarServer,
    payments: PaymentsServer,
    ada: Caller,
    /// The id of Ada's organization.
    org: String,
}

impl Kit {
    async fn start() -> Self {
        let (registrar, payments) = (RegistrarServer::start().await, PaymentsServer::start(None).await);
        let app = App::with(|config| {
            use_provider(config, &payments);
            use_registrar(config, &registrar);
        })
        .await;
        let ada = app.sign_in("ada").await;
        let org = org_id(&ada).await.as_str().unwrap().to_owned();
        payments.set_card(&org, false);
        Self { app, registrar, payments, ada, org }
    }

    async fn buy(&self, name: &str) -> ApiResponse {
        self.ada.post(DOMAINS, purchase(name)).await
    }

    async fn domain(&self, name: &str) -> ApiResponse {
        self.ada.get(&format!("{DOMAINS}/{name}")).await
    }

    /// Sends a POST about a domain.
    async fn act(&self, name: &str, action: &str, body: Value) -> ApiResponse {
        self.ada.post(&format!("{DOMAINS}/{name}/{action}"), body).await
    }

    /// Returns the number of registrations and renewals of a name.
    fn orders(&self, operation: RegistrarOperation, name: &str) -> usize {
        self.registrar.orders().iter().filter(|order| order.operation == operation && order.name == name).count()
    }

    /// Asserts that a domain is registered and charged once, and works.
    async fn assert_bought(&self, name: &str) {
        let domain = self.domain(name).await.expect(200).clone();
        assert_eq!((&domain["state"], &domain["locked"]), (&json!("active"), &json!(true)));
        assert_eq!(domain["nameservers"], json!(NAMESERVERS));
        assert_eq!(self.registrar.domain(name).unwrap()["nameservers"], json!(NAMESERVERS));
        assert_eq!(self.orders(RegistrarOperation::Register, name), 1);
        assert_eq!(self.payments.net_cents(&self.org), COM_CENTS);
        self.ada.get(&format!("/v1/orgs/ada/dns/zones/{name}")).await.expect(200);
    }

    /// Asserts that a name is neither registered nor charged nor reserved.
    async fn assert_not_bought(&self, name: &str) {
        self.domain(name).await.expect_error(404, "not_found");
        assert_eq!(self.orders(RegistrarOperation::Register, name), 0);
        assert_eq!(self.payments.net_cents(&self.org), 0);
        self.ada.get(&format!("/v1/orgs/ada/dns/zones/{name}")).await.expect_error(404, "not_found");
    }
}

/// Configures the registrar and the product of domains.
pub fn use_registrar(config: &mut Config, registrar: &RegistrarServer) {
    let (url, user) = (registrar.url().parse().unwrap(), REGISTRAR_USER.to_owned());
    config.registrar = Some(RegistrarConfig { url, user, token: Secret::new(REGISTRAR_TOKEN.to_owned()) });
    config.domain_product = Some(DOMAIN_PRODUCT.to_owned());
    config.abuse_limits.registrar_requests_per_org = u32::MAX;
}

pub fn contact() -> Value {
    json!({
        "firstName": "Ada", "lastName": "Lovelace", "email": "ada@code.example", "phone": "+442079460000",
        "street": "12 St James's Square", "city": "London", "postalCode": "SW1Y 4JH", "country": "GB",
    })
}

pub fn purchase(name: &str) -> Value {
    json!({ "name": name, "contact": contact() })
}

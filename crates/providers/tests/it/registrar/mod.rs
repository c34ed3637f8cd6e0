//! The registrar's client, against the sandbox.

mod failures;
mod operations;
mod prices;

use kernel::Secret;
use providers::Limits;
use providers::registrar::{NewRegistration, RegistrarClient, RegistrarContact, RegistrarDomain, RegistrarError};
use sandbox::{REGISTRAR_TOKEN, REGISTRAR_USER, RegistrarServer};

fn client(server: &RegistrarServer) -> RegistrarClient {
    with_limits(server, Limits::default())
}

fn with_limits(server: &RegistrarServer, limits: Limits) -> RegistrarClient {
    let (user, token) = (REGISTRAR_USER.to_owned(), Secret::new(REGISTRAR_TOKEN.to_owned()));
    RegistrarClient::with_limits(&server.url().parse().unwrap(), user, token, limits).unwrap()
}

fn contact() -> RegistrarContact {
    RegistrarContact {
        first_name: "Ada".to_owned(),
        last_name: "Lovelace".to_owned(),
        company_name: String::new(),
        address1: "12 St James's Square".to_owned(),
        city: "London".to_owned(),
        state: String::new(),
        zip: "SW1Y 4JH".to_owned(),
        country: "GB".to_owned(),
        phone: "+442079460000".to_owned(),
        email: "ada@code.example".to_owned(),
    }
}

/// Registers a `.com` name for a year.
async fn register(client: &RegistrarClient, name: &str, key: &str) -> Result<RegistrarDomain, RegistrarError> {
    let contact = contact();
    let registration = NewRegistration { name, contact: &contact, price_cents: 1_299, years: 1, idempotency_key: key };
    client.register(&registration).await
}

//! The client of certificate authorities, against a small authority with the real protocol. It does not verify
//! signatures. The tests with Pebble, which does, are in `apps/server/tests/api/certificates`.

mod errors;
mod orders;
mod server;

use providers::acme::{Acme, AcmeConfig, AcmeError, AcmeSession};

use server::AcmeServer;

fn authority(server: &AcmeServer) -> Acme {
    let directory = format!("{}/directory", server.base).parse().unwrap();
    Acme::new(AcmeConfig { directory, contact: None, binding: None, ca: None }).unwrap()
}

/// Creates an account, and starts a session.
async fn session(server: &AcmeServer) -> Result<AcmeSession, AcmeError> {
    let authority = authority(server);
    let account = authority.create_account().await?;
    authority.open(&account).await
}

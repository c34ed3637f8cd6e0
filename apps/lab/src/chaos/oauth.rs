//! Faults of the authorization server: races of its requests, `kill -9` of the server and of Postgres between them, and
//! a rotation of the signing key under load.

pub mod crashes;
mod races;
mod rotation;

use anyhow::Result;
use reqwest::Client;
use store::Store;

use super::Outcome;
use super::rig::Rig;
use crate::connected_app::{ConnectedApp, SharedKey, start_session};

/// The server under test, as the requests of this module use it.
#[derive(Clone)]
pub struct Setup {
    store: Store,
    client: Client,
    base: String,
    pub app: ConnectedApp,
    /// The session of a user.
    session: String,
}

/// Selects the grants that do not have exactly one usable refresh token.
const CURRENT_TOKENS: &str = "\
    SELECT g.id, count(r.token_hash) AS current FROM oauth.grants g \
    LEFT JOIN oauth.refresh_tokens r ON r.grant_id = g.id AND r.rotated_at IS NULL \
    GROUP BY g.id HAVING count(r.token_hash) <> 1";

/// Selects the counts of grants if they do not add up: every grant that was created must be live, or its end must be in
/// the audit log exactly once.
const AUDITED_ENDS: &str = "\
    SELECT * FROM ( \
        SELECT count(*) FILTER (WHERE event = 'oauth.grant.create') AS created, \
            count(*) FILTER (WHERE event = 'oauth.grant.revoke') AS revoked, \
            coalesce(sum((data ->> 'grants')::bigint) FILTER (WHERE event = 'oauth.client.remove'), 0) AS removed, \
            coalesce(sum(jsonb_array_length(data -> 'ended')) FILTER (WHERE event = 'oauth.grant.create'), 0) AS replaced, \
            (SELECT count(*) FROM oauth.grants) AS live \
        FROM store.audit WHERE event LIKE 'oauth.%') t \
    WHERE created <> revoked + removed + replaced + live";

pub async fn run(rounds: usize) -> Result<Outcome> {
    let (mut outcome, key) = (Outcome::default(), SharedKey::generate());
    let mut rig = Rig::start(&key.settings()).await?;
    let setup = Setup::new(&key, &rig.database, rig.service.base()).await?;
    races::run(&setup, rounds, &mut outcome).await?;
    crashes::run(&setup, &mut rig, rounds, &mut outcome).await?;
    rotation::run(&setup, &rig, &key, &mut outcome).await?;
    for (what, statement) in [("current refresh tokens", CURRENT_TOKENS), ("audited ends of grants", AUDITED_ENDS)] {
        for row in chaos::rows(&rig.database, statement).await? {
            outcome.violations.push(format!("{what}: {row}"));
        }
    }
    rig.verify(&mut outcome).await?;
    rig.stop().await?;
    Ok(outcome)
}

impl Setup {
    /// Registers an app and signs a user in at the server with this base URL.
    pub async fn new(key: &SharedKey, database_url: &str, base: String) -> Result<Self> {
        let (store, client) = (key.store(database_url)?, chaos::client()?);
        let app = ConnectedApp::register(&store, &client, &base).await?;
        let session = start_session(&client, &base, "grace").await?;
        Ok(Self { store, client, base, app, session })
    }

    /// Returns the same setup with an app that repeats a request after a 503.
    fn repeating(&self) -> Self {
        Self { app: self.app.repeating(), ..self.clone() }
    }
}

//! Registration of clients by an operator.

use kernel::audit::{Actor, Event};
use kernel::{ClientId, InvalidField, ScopeSet, Token, TokenKind};
use serde_json::json;
use store::{Connection, Outcome, Store, is_full_batch};

use crate::error::OAuthError;
use crate::model::{ClientCreated, NewClient, RegisteredClient};
use crate::redirect_uri::RedirectUri;
use crate::repository::{ClientRecord, ClientRepository as _, EndedGrant, GrantFilter, GrantRepository as _};

type Result<T> = std::result::Result<T, OAuthError>;

/// The outbox topic of ended grants. The payload is `{"sid"}`, and the key is the grant's id.
pub const REVOCATION_TOPIC: &str = "oauth.revocation";
/// The maximum number of redirect URIs of a client.
const MAX_REDIRECT_URIS: usize = 20;
const MAX_NAME_CHARS: usize = 100;

/// The clients, for the commands of operators.
#[derive(Debug, Clone)]
pub struct Clients {
    store: Store,
}

impl Clients {
    /// Creates the service.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// Registers a client.
    ///
    /// # Errors
    /// Returns [`OAuthError::Field`] for an unusable name, for an unusable or missing redirect URI, and for an empty
    /// set of scopes.
    pub async fn add(&self, actor: &Actor, new: NewClient) -> Result<ClientCreated> {
        let NewClient { name, redirect_uris, scopes, confidential, device } = new;
        let name = name.trim().to_owned();
        if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || name.chars().any(char::is_control) {
            let rule = format!("must be 1 to {MAX_NAME_CHARS} characters without control characters");
            return Err(InvalidField::new("name", rule).into());
        }
        for (at, uri) in redirect_uris.iter().enumerate() {
            RedirectUri::parse(uri).map_err(|error| InvalidField::new(format!("redirectUris[{at}]"), error))?;
        }
        if redirect_uris.len() > MAX_REDIRECT_URIS || redirect_uris.is_empty() && !device {
            let rule = format!("must have 1 to {MAX_REDIRECT_URIS} URIs; only a client of the device flow needs none");
            return Err(InvalidField::new("redirectUris", rule).into());
        }
        let scopes = scopes.unwrap_or_else(ScopeSet::all);
        if scopes.is_empty() {
            return Err(InvalidField::new("scopes", "must have a scope").into());
        }
        let secret = confidential.then(|| Token::mint(TokenKind::ClientSecret, self.store.clock_rng()));
        let client = ClientRecord {
            id: self.store.clock_rng().id(),
            name,
            redirect_uris,
            scopes,
            secret_hash: secret.as_ref().map(Token::hash),
            device,
            created_at: self.store.clock_rng().now(),
        };
        self.store
            .transaction::<_, OAuthError>(actor, async |tx: &mut Connection| {
                tx.client_insert(&client).await?;
                let data = json!({ "name": client.name, "redirectUris": client.redirect_uris,
                    "scopes": client.scopes.to_string(), "confidential": confidential, "device": device });
                Ok(Outcome::Changed((), Event::of_platform("oauth.client.add", client.id, data)))
            })
            .await?;
        Ok(ClientCreated { id: client.id, secret })
    }

    /// Lists the clients, oldest first.
    ///
    /// # Errors
    /// Returns [`OAuthError::Store`].
    pub async fn list(&self) -> Result<Vec<RegisteredClient>> {
        let clients = self.store.connection().await?.client_list().await?;
        Ok(clients.into_iter().map(RegisteredClient::from).collect())
    }

    /// Removes a client, which ends its grants. Returns their number.
    ///
    /// # Errors
    /// Returns [`OAuthError::ClientNotFound`].
    pub async fn remove(&self, actor: &Actor, client: ClientId) -> Result<usize> {
        let now = self.store.clock_rng().now();
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                if !tx.client_lock(client).await? {
                    return Err(OAuthError::ClientNotFound);
                }
                let filter = GrantFilter { client: Some(client), ..GrantFilter::default() };
                let mut grants = 0;
                // In batches, so that no statement reaches its timeout.
                loop {
                    let ended = tx.grant_end(filter, now).await?;
                    enqueue_revocations(&self.store, tx, &ended).await?;
                    grants += ended.len();
                    if !is_full_batch(ended.len()) {
                        break;
                    }
                }
                tx.client_delete(client).await?;
                let event = Event::of_platform("oauth.client.remove", client, json!({ "grants": grants }));
                Ok(Outcome::Changed(grants, event))
            })
            .await
    }
}

/// Enqueues a message to the model-lending service for each ended grant. If no server has the settings of this service,
/// the servers delete the messages after 72 hours.
pub(crate) async fn enqueue_revocations(store: &Store, tx: &mut Connection, ended: &[EndedGrant]) -> Result<()> {
    for grant in ended {
        store.enqueue(tx, REVOCATION_TOPIC, &grant.id.to_string(), &json!({ "sid": grant.id })).await?;
    }
    Ok(())
}

//! Credentials in files that only their owner can read.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use convergence::{ConvergenceError, NodeKind, Nodes};
use kernel::audit::Actor;
use kernel::{ClientId, ClockRng, Secret, Token, TokenKind};
use oauth::{Clients, NewClient, RegisteredClient};
use store::{Config, Store};

/// Ensures that the file contains a valid credential of the node of this kind. Renews it if the file was replaced, and
/// adds the node if the database was replaced.
pub async fn ensure_node(database_url: Secret, token_file: &Path, kind: NodeKind) -> Result<()> {
    let name = match kind {
        NodeKind::App => "dev",
        NodeKind::Git => "dev-git",
        NodeKind::Mail => "dev-mail",
    };
    let store = Store::new(&Config::new(database_url, "xtask"), ClockRng::system())?;
    let nodes = Nodes::new(store);
    if let Some(token) = fs::read_to_string(token_file).ok().and_then(|it| Token::parse(TokenKind::Node, it.trim())) {
        match nodes.authenticate(&token, kind).await {
            Ok(_) => return Ok(()),
            Err(ConvergenceError::UnknownNode) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let (name, actor) = (name.parse().context("invalid node name")?, Actor::operator("xtask dev"));
    let node = match nodes.renew(&actor, &name).await {
        Err(ConvergenceError::NodeNotFound(_)) => nodes.add(&actor, name, kind).await?,
        renewed => renewed?,
    };
    write_secret(token_file, node.token.reveal())
}

/// Returns the client id of the public app with this name and these redirect URIs. Registers the app if necessary. An
/// app without a redirect URI uses the device flow.
pub async fn ensure_app(database_url: Secret, name: &str, redirect_uris: Vec<String>) -> Result<ClientId> {
    let clients = Clients::new(Store::new(&Config::new(database_url, "xtask"), ClockRng::system())?);
    let is_known = |client: &RegisteredClient| {
        client.name == name && !client.confidential && client.redirect_uris == redirect_uris
    };
    if let Some(client) = clients.list().await?.into_iter().find(is_known) {
        return Ok(client.client_id);
    }
    let device = redirect_uris.is_empty();
    let new = NewClient { name: name.to_owned(), redirect_uris, scopes: None, confidential: false, device };
    Ok(clients.add(&Actor::operator("xtask dev"), new).await?.id)
}

/// Returns a random key of 256 bits in base64.
pub fn random_key() -> String {
    STANDARD.encode(ClockRng::system().bytes::<32>())
}

/// Ensures that the file contains a key. Writes `prefix` and a random key unless the file exists.
pub fn ensure_key(path: &Path, prefix: &str) -> Result<()> {
    if path.exists() { Ok(()) } else { write_secret(path, &format!("{prefix}{}", random_key())) }
}

/// Writes a file that only its owner can read. Writes to a temporary name first, so that the file is always complete.
pub fn write_secret(path: &Path, secret: &str) -> Result<()> {
    let unfinished = path.with_extension("new");
    let write = || {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        writeln!(file, "{secret}")?;
        fs::rename(&unfinished, path)
    };
    write().with_context(|| format!("{}", path.display()))
}

//! The node that `dev` runs, as the control plane knows it.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use convergence::{ConvergenceError, Nodes};
use kernel::audit::Actor;
use kernel::{Secret, Token, TokenKind, World};
use store::{Config, Store};

use super::own::write_secret;

/// Sees to it that the file holds the credential of a node. The database and the file may each have been replaced
/// without the other.
pub async fn ensure_node(database_url: Secret, token_file: &Path) -> Result<()> {
    let store = Store::new(&Config::new(database_url, "xtask"), World::system())?;
    let nodes = Nodes::new(store);
    if let Some(token) = fs::read_to_string(token_file).ok().and_then(|it| Token::parse(TokenKind::Node, it.trim())) {
        match nodes.authenticate(&token).await {
            Ok(_) => return Ok(()),
            Err(ConvergenceError::UnknownNode) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let name = "dev".parse().context("a node's name")?;
    let renewed = nodes.renew(&Actor::operator("xtask dev"), name).await?;
    write_secret(token_file, renewed.token.reveal())
}

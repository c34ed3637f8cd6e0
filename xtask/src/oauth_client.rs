//! `oauth-client`: registers connected apps. For operators.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Subcommand;
use kernel::audit::Actor;
use kernel::seal::Keys;
use kernel::{ClientId, Scope, ScopeSet};
use oauth::{Clients, NewClient};
use serde_json::json;

use crate::output::{out, print_credential};
use crate::setting::DatabaseArgs;

pub type Args = DatabaseArgs<Command>;

#[derive(Subcommand)]
pub enum Command {
    /// Register an app, and print its client id and, if it is confidential, its secret, which is shown only once
    Add {
        /// The name that users see when they approve the app
        #[arg(long)]
        name: String,
        /// The redirect URIs
        #[arg(long = "redirect-uri", value_name = "URI", num_args = 1..)]
        redirect_uris: Vec<String>,
        /// The scopes that the app may have [default: all scopes]
        #[arg(long = "scope", value_name = "SCOPE", num_args = 1.., value_delimiter = ' ')]
        scopes: Vec<Scope>,
        /// The app can keep a secret: it is not a native app, and does not run in a browser
        #[arg(long)]
        confidential: bool,
        /// The app may use the device flow
        #[arg(long)]
        device: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the apps, oldest first
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove an app, which ends all its grants
    Remove { client_id: ClientId },
}

pub async fn run(args: Args) -> Result<ExitCode> {
    // Only the removal of an app needs the keys: it ends grants, and the messages about ended grants are sealed.
    let keys = match args.command {
        Command::Remove { .. } => args.database.keys()?,
        Command::Add { .. } | Command::List { .. } => Keys::default(),
    };
    let clients = Clients::new(args.database.store_with(keys).await?);
    match args.command {
        Command::Add { name, redirect_uris, scopes, confidential, device, json } => {
            let scopes = if scopes.is_empty() { None } else { Some(scopes.into_iter().collect::<ScopeSet>()) };
            let new = NewClient { name, redirect_uris, scopes, confidential, device };
            let created = clients.add(&Actor::operator("xtask oauth-client add"), new).await?;
            let (id, secret) = (created.id, created.secret.as_ref().map(kernel::Token::reveal));
            let lines = if json {
                json!({ "clientId": id, "clientSecret": secret }).to_string()
            } else {
                format!("client id      {id}\nclient secret  {}", secret.unwrap_or("none: the app is public"))
            };
            match secret {
                Some(_) => {
                    print_credential(&lines, &format!("run `xtask oauth-client remove {id}`, then add the app again"))?;
                }
                None => out!("{lines}")?,
            }
        }
        Command::List { json } => {
            let all = clients.list().await?;
            if json {
                out!("{}", serde_json::to_string(&all)?)?;
                return Ok(ExitCode::SUCCESS);
            }
            for client in all {
                let kind = if client.confidential { "confidential" } else { "public" };
                let device = if client.device { ", device flow" } else { "" };
                let scopes = client.scopes.iter().map(Scope::as_str).collect::<Vec<_>>().join(" ");
                out!("{}  {}  {kind}{device}  {}  {scopes}", client.client_id, client.name, client.created_at)?;
                for uri in client.redirect_uris {
                    out!("    {uri}")?;
                }
            }
        }
        Command::Remove { client_id } => {
            let ended = clients.remove(&Actor::operator("xtask oauth-client remove"), client_id).await;
            ensure!(!matches!(ended, Err(oauth::OAuthError::ClientNotFound)), "there is no app {client_id}");
            out!("removed; ended grants: {}", ended?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

//! `svc login`, `svc logout` and `svc whoami`.

use std::time::Duration;

use client::types::{DevLogin, Session};
use client::{Client, Method, Secret};
use serde_json::Value;

use super::{device, git};
use crate::browser;
use crate::config::{Config, StoredGrant};
use crate::error::CliError;
use crate::loopback::{CallbackParams, Loopback};
use crate::output::{or_dash, table};
use crate::prompt;
use crate::svc::Svc;

/// The lifetime of a sign-in at the API.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(600);
const SESSION_PREFIX: &str = "svc_ses_";

#[derive(clap::Args)]
pub struct Login {
    /// Use the development login as this subject
    #[arg(long, value_name = "SUBJECT", conflicts_with = "token")]
    dev: Option<String>,
    /// Use a personal access token, read from stdin
    #[arg(long)]
    token: bool,
    /// Print the sign-in URL instead of opening it
    #[arg(long, conflicts_with_all = ["dev", "token"])]
    no_browser: bool,
    /// Approve the sign-in in a browser on another machine
    #[arg(long, conflicts_with_all = ["dev", "token", "no_browser"])]
    device: bool,
    /// Client ID of --device [default: the one that the API offers]
    #[arg(long, requires = "device", value_name = "ID")]
    client_id: Option<String>,
}

impl Login {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        if self.token {
            svc.require_explicit_api("the token")?;
        }
        if svc.anonymous.base().scheme() != "https" && !svc.anonymous.is_loopback() {
            svc.out.warn(format!("{} is not https: others on the network can read your credential", svc.api));
        }
        // If the file is damaged, fail before the sign-in creates a session that cannot be stored.
        Config::read()?;
        svc.out.info(format!("Signing in at {}", svc.api));
        let (credential, grant) = match self {
            Self { device: true, client_id, .. } => {
                let (credential, grant) = device::sign_in(svc, client_id).await?;
                (credential, Some(grant))
            }
            login => (login.credential(svc).await?, None),
        };
        self::store(svc, credential, grant).await
    }

    /// Signs in with a session or a token.
    async fn credential(self, svc: &Svc<'_>) -> Result<Secret, CliError> {
        match self {
            Self { token: true, .. } => prompt::secret("token"),
            Self { dev: Some(subject), .. } => dev_login(svc, subject).await,
            Self { no_browser, .. } => code_host_login(svc, no_browser).await,
        }
    }
}

/// Verifies a credential, and stores it.
async fn store(svc: &Svc<'_>, credential: Secret, grant: Option<StoredGrant>) -> Result<(), CliError> {
    let client = svc.anonymous.clone().with_credential(credential.clone());
    match show_identity(svc, &client).await {
        // A closed output does not invalidate the credential.
        Ok(()) | Err(CliError::Closed) => {}
        // The hint of other commands is about the stored credential or SVC_CLI_TOKEN.
        Err(CliError::Api(error)) if error.code() == Some("unauthenticated") => {
            return Err(CliError::Explained(error, "use a token that is neither expired nor revoked"));
        }
        Err(error) => return Err(error),
    }
    let lock = Config::lock()?;
    let mut config = Config::read()?;
    let former = config.credentials.insert(svc.api.clone(), credential.clone());
    // The tokens of git may belong to another user.
    let git_tokens = config.git_tokens.remove(&svc.api).unwrap_or_default();
    let replaced = match grant {
        Some(grant) => config.grants.insert(svc.api.clone(), grant),
        None => config.grants.remove(&svc.api),
    };
    if !svc.is_api_from_link {
        config.current = Some(svc.api.clone());
    }
    config.write()?;
    drop(lock);
    let client = former.clone().map(|former| svc.anonymous.clone().with_credential(former));
    git::revoke(svc, client.as_ref(), &git_tokens).await;
    if let Some(former) = former.filter(|former| *former != credential) {
        end_session(svc, former).await;
    }
    if let Some(replaced) = replaced {
        device::revoke(svc, &replaced).await;
    }
    svc.out.success(format!("signed in at {}", svc.api));
    Ok(())
}

async fn dev_login(svc: &Svc<'_>, subject: String) -> Result<Secret, CliError> {
    let login = DevLogin { subject, email: None, name: None };
    let answer = svc.anonymous.auth_dev_login(&login).send().await;
    let session: Session = match answer {
        Err(error) if error.status() == Some(404) => {
            // At a wrong base URL, this request fails too.
            svc.anonymous.service_config().send().await?;
            return Err(CliError::Other(format!("the development login is disabled at {}", svc.api)));
        }
        answer => answer?.value,
    };
    Ok(session.token)
}

async fn code_host_login(svc: &Svc<'_>, no_browser: bool) -> Result<Secret, CliError> {
    let document = svc.anonymous.call::<Value>(Method::GET, &["v1", "openapi.json"]).send().await?;
    if document.get("paths").and_then(|paths| paths.get("/v1/auth/codehost/start")).is_none() {
        return Err(CliError::Other(format!(
            "sign-in at a code host is disabled at {}; run `svc login --token` with an access token",
            svc.api
        )));
    }
    let loopback = Loopback::listen().await?;
    let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("redirect", &loopback.url()).finish();
    let start = format!("{}/v1/auth/codehost/start?{query}", svc.api);
    if no_browser || !browser::open(&start) {
        svc.out.info(format!("Open this URL in a browser on this machine:\n\n  {start}\n"));
    } else {
        svc.out.info(format!("Opening {start} in your browser"));
    }
    svc.out
        .info("Waiting for the sign-in. If the page reports that the address is not allowed, ask the operator of the");
    svc.out.info("API to add http://127.0.0.1 to SVC_CODEHOST_REDIRECTS.");
    let params = tokio::time::timeout(SIGN_IN_TIMEOUT, loopback.callback()).await;
    session(params.map_err(|_| CliError::Other("the sign-in was not completed within ten minutes".to_owned()))??)
}

fn session(mut params: CallbackParams) -> Result<Secret, CliError> {
    if let Some(error) = params.remove("error") {
        let message = params.remove("message").unwrap_or_default();
        return Err(CliError::Other(format!("the sign-in failed: {message} (code {error})")));
    }
    let token = params.remove("token").filter(|token| token.starts_with(SESSION_PREFIX));
    token.map(Secret::new).ok_or_else(|| CliError::Other("the browser did not return a session".to_owned()))
}

pub async fn logout(svc: &Svc<'_>) -> Result<(), CliError> {
    let lock = Config::lock()?;
    let mut config = Config::read()?;
    let grant = config.grants.remove(&svc.api);
    let git_tokens = config.git_tokens.remove(&svc.api).unwrap_or_default();
    let Some(credential) = config.credentials.remove(&svc.api) else {
        if !git_tokens.is_empty() {
            config.write()?;
            drop(lock);
            git::revoke(svc, None, &git_tokens).await;
        }
        svc.out.info(format!("you are not signed in at {}", svc.api));
        return svc.out.json_only(&Value::Null);
    };
    // Delete the credentials first, so that this machine is signed out even if the API is unavailable.
    config.write()?;
    drop(lock);
    if let Some(grant) = grant {
        device::revoke(svc, &grant).await;
    }
    let client = svc.anonymous.clone().with_credential(credential.clone());
    git::revoke(svc, Some(&client), &git_tokens).await;
    end_session(svc, credential).await;
    svc.out.success(format!("signed out at {}", svc.api));
    svc.out.json_only(&Value::Null)
}

/// Ends the session, if the credential is one.
async fn end_session(svc: &Svc<'_>, credential: Secret) {
    if !credential.reveal().starts_with(SESSION_PREFIX) {
        return;
    }
    match svc.anonymous.clone().with_credential(credential).auth_logout().send().await {
        // The session has already ended.
        Err(error) if error.status() == Some(401) => {}
        Err(error) => {
            svc.out.warn(format!("the API did not end the session, which remains valid until it expires: {error}"));
        }
        Ok(_) => {}
    }
}

pub async fn whoami(svc: &Svc<'_>) -> Result<(), CliError> {
    show_identity(svc, &svc.client()?).await
}

/// Prints the user of a credential, or the token's name and prefix if it may not read the account.
async fn show_identity(svc: &Svc<'_>, client: &Client) -> Result<(), CliError> {
    let me = match client.me_get().send().await {
        Err(error) if error.code() == Some("insufficient_scope") => {
            let token = client.credentials_token_current().send().await?;
            return svc.out.response(&token, |token| format!("the token {} ({}…)", token.name, token.prefix));
        }
        answer => answer?,
    };
    svc.out.response(&me, |me| {
        let name = or_dash(me.name.as_deref().or(me.email.as_deref()));
        let orgs = me.orgs.iter().map(|org| [org.slug.clone(), org.role.to_string(), org.plan.to_string()]);
        format!("{} at {} ({name})\n\n{}", me.subject, me.provider, table(["ORGANIZATION", "ROLE", "PLAN"], orgs))
    })
}

//! Signing in and out, and who that is.

use std::time::Duration;

use client::types::{DevLogin, Session};
use client::{Client, Method, Secret};
use serde_json::Value;

use crate::browser;
use crate::config::Config;
use crate::failure::Failure;
use crate::loopback::{Loopback, Told};
use crate::output::{or_dash, table};
use crate::prompt;
use crate::svc::Svc;

/// A sign-in lives ten minutes at the API.
const PATIENCE: Duration = Duration::from_secs(600);
const SESSION: &str = "svc_ses_";

#[derive(clap::Args)]
pub struct Login {
    /// As this subject, on a deployment with the development login
    #[arg(long, value_name = "SUBJECT", conflicts_with = "token")]
    dev: Option<String>,
    /// With a personal access token, read from stdin
    #[arg(long)]
    token: bool,
    /// Print the address to open instead of opening it
    #[arg(long, conflicts_with_all = ["dev", "token"])]
    no_browser: bool,
}

impl Login {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), Failure> {
        if self.token {
            svc.chosen("a token is to be sent")?;
        }
        if svc.anyone.base().scheme() != "https" && !svc.anyone.is_loopback() {
            svc.out.warn(format!("{} is not https: whoever is in between can read your credential", svc.api));
        }
        svc.out.say(format!("Signing in at {}", svc.api));
        let credential = match self {
            Self { token: true, .. } => prompt::secret("token")?,
            Self { dev: Some(subject), .. } => dev(svc, subject).await?,
            Self { no_browser, .. } => code_host(svc, no_browser).await?,
        };
        let client = svc.anyone.clone().with_credential(credential.clone());
        // Before it is kept: what does not open anything is not worth keeping.
        match show(svc, &client).await {
            // Nobody reads whose it is; it is to be kept all the same.
            Ok(()) | Err(Failure::Closed) => {}
            Err(failure) => return Err(failure),
        }
        let mut config = Config::read()?;
        config.credentials.insert(svc.api.clone(), credential);
        if !svc.is_linked {
            config.current = Some(svc.api.clone());
        }
        config.write()?;
        svc.out.done(format!("signed in at {}", svc.api));
        Ok(())
    }
}

async fn dev(svc: &Svc<'_>, subject: String) -> Result<Secret, Failure> {
    let login = DevLogin { subject, email: None, name: None };
    let answer = svc.anyone.auth_dev_login(&login).send().await;
    let session: Session = match answer {
        Err(client::Error::Refused { status: 404, .. }) => {
            return Err(Failure::Other(format!("{} has no development login", svc.api)));
        }
        answer => answer?.value,
    };
    Ok(session.token)
}

async fn code_host(svc: &Svc<'_>, no_browser: bool) -> Result<Secret, Failure> {
    let document = svc.anyone.call::<Value>(Method::GET, &["v1", "openapi.json"]).send().await?;
    if document.get("paths").and_then(|paths| paths.get("/v1/auth/codehost/start")).is_none() {
        let words = format!("{} has no code host to sign in at; `svc login --token` takes an access token", svc.api);
        return Err(Failure::Other(words));
    }
    let loopback = Loopback::listen().await?;
    let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("redirect", &loopback.url()).finish();
    let start = format!("{}/v1/auth/codehost/start?{query}", svc.api);
    if no_browser || !browser::open(&start) {
        svc.out.say(format!("Open this address in a browser on this machine:\n\n  {start}\n"));
    } else {
        svc.out.say(format!("Your browser opens {start}"));
    }
    svc.out.say("Waiting for it. (Should it show that the address is not allowed: the API's operator has to add");
    svc.out.say("http://127.0.0.1 to SVC_CODEHOST_REDIRECTS.)");
    let told = tokio::time::timeout(PATIENCE, loopback.told()).await;
    session(told.map_err(|_| Failure::Other("nobody signed in within ten minutes".to_owned()))??)
}

fn session(mut told: Told) -> Result<Secret, Failure> {
    if let Some(error) = told.remove("error") {
        let message = told.remove("message").unwrap_or_default();
        return Err(Failure::Other(format!("the sign-in failed: {message} (code {error})")));
    }
    let token = told.remove("token").filter(|token| token.starts_with(SESSION));
    token.map(Secret::new).ok_or_else(|| Failure::Other("the browser handed over no session".to_owned()))
}

pub async fn logout(svc: &Svc<'_>) -> Result<(), Failure> {
    let mut config = Config::read()?;
    let Some(credential) = config.credentials.remove(&svc.api) else {
        svc.out.say(format!("you are not signed in at {}", svc.api));
        return svc.out.for_programs(&Value::Null);
    };
    // First, so that this machine has signed out wherever the API is.
    config.write()?;
    if credential.reveal().starts_with(SESSION) {
        match svc.anyone.clone().with_credential(credential).auth_logout().send().await {
            // It had ended before.
            Err(error) if error.status() == Some(401) => {}
            Err(error) => svc.out.warn(format!("the session lives on at the API until it expires: {error}")),
            Ok(_) => {}
        }
    }
    svc.out.done(format!("signed out at {}", svc.api));
    svc.out.for_programs(&Value::Null)
}

pub async fn whoami(svc: &Svc<'_>) -> Result<(), Failure> {
    show(svc, &svc.client()?).await
}

/// Who a credential belongs to; of a token that may not know, what it is.
async fn show(svc: &Svc<'_>, client: &Client) -> Result<(), Failure> {
    let me = match client.me_get().send().await {
        Err(error) if error.code() == Some("insufficient_scope") => {
            let token = client.credentials_token_current().send().await?;
            return svc.out.answer(&token, |token| format!("the token {} ({}…)", token.name, token.prefix));
        }
        answer => answer?,
    };
    svc.out.answer(&me, |me| {
        let name = or_dash(me.name.as_deref().or(me.email.as_deref()));
        let orgs = me.orgs.iter().map(|org| [org.slug.clone(), org.role.to_string(), org.plan.to_string()]);
        format!("{} at {} ({name})\n\n{}", me.subject, me.provider, table(["ORGANIZATION", "ROLE", "PLAN"], orgs))
    })
}

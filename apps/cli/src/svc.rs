//! The context of a command: the API, the credential and the project.

use std::sync::Arc;

use client::{Client, Secret};

use crate::commands::device::StoredTokens;
use crate::config::Config;
use crate::error::CliError;
use crate::link::Link;
use crate::output::Output;

/// The API that `cargo xtask dev` starts.
const DEFAULT_API: &str = "http://127.0.0.1:8080";
const USER_AGENT: &str = concat!("svc/", env!("CARGO_PKG_VERSION"));

/// The global options of the command line.
pub struct GlobalArgs {
    pub api: Option<String>,
    pub org: Option<String>,
    pub project: Option<String>,
}

pub struct Svc<'a> {
    pub out: &'a Output,
    /// The base URL of the API, which is the key of its stored credential.
    pub api: String,
    /// A client without a credential.
    pub anonymous: Client,
    args: GlobalArgs,
    link: Option<Link>,
    /// Whether the API comes only from the link file of the folder.
    pub is_api_from_link: bool,
}

impl<'a> Svc<'a> {
    /// Selects the API in this order: command line, environment, link file, last sign-in, local default.
    pub fn find(args: GlobalArgs, link: Option<Link>, out: &'a Output) -> Result<Self, CliError> {
        let explicit = match &args.api {
            Some(api) => Some(api.clone()),
            None => environment("SVC_CLI_API")?,
        };
        let is_api_from_link = explicit.is_none() && link.is_some();
        let api = match explicit.or_else(|| link.as_ref().map(|link| link.api.clone())) {
            Some(api) => api,
            None => Config::read()?.current.unwrap_or_else(|| DEFAULT_API.to_owned()),
        };
        let anonymous = Client::new(&api, USER_AGENT)?;
        let api = anonymous.base().as_str().trim_end_matches('/').to_owned();
        Ok(Self { out, api, anonymous, args, link, is_api_from_link })
    }

    /// Returns a client with the credential of the signed-in user.
    pub fn client(&self) -> Result<Client, CliError> {
        let credential = self.require_credential()?;
        let client = self.anonymous.clone();
        if !uses_stored_credential() {
            return Ok(client.with_credential(credential));
        }
        let source = StoredTokens { api: self.api.clone(), anonymous: client.clone() };
        Ok(client.with_credential_source(credential, Arc::new(source)))
    }

    /// Returns the credential of the signed-in user.
    pub fn require_credential(&self) -> Result<Secret, CliError> {
        let credential = match environment("SVC_CLI_TOKEN")? {
            Some(token) => self.require_explicit_api("SVC_CLI_TOKEN").map(|()| Some(Secret::new(token)))?,
            None => Config::read()?.credentials.remove(&self.api),
        };
        credential.ok_or_else(|| CliError::NotSignedIn(self.api.clone()))
    }

    /// Fails if the API comes only from the link file. Otherwise the author of a folder could choose where a token is
    /// sent.
    pub fn require_explicit_api(&self, credential: &str) -> Result<(), CliError> {
        if !self.is_api_from_link {
            return Ok(());
        }
        Err(CliError::Usage(format!(
            "{credential} is not sent to {0}, which only .svc/project.json names: confirm it with --api {0} or SVC_CLI_API",
            self.api
        )))
    }

    pub fn org(&self) -> Result<String, CliError> {
        let org = self.args.org.clone().or_else(|| Some(self.link.as_ref()?.org.clone()));
        org.ok_or_else(|| {
            CliError::Usage("no organization is selected: use --org, or link the folder with `svc init`".into())
        })
    }

    /// Returns the organization and the project. The linked project applies only in the linked organization.
    pub fn project(&self) -> Result<(String, String), CliError> {
        let org = self.org()?;
        let linked = || Some(self.link.as_ref().filter(|link| link.org == org)?.project.clone());
        let project = self.args.project.clone().or_else(linked);
        let project = project.ok_or_else(|| {
            CliError::Usage("no project is selected: use --project, or link the folder with `svc init`".into())
        })?;
        Ok((org, project))
    }
}

/// Returns whether commands use the credential of the last sign-in.
pub fn uses_stored_credential() -> bool {
    matches!(environment("SVC_CLI_TOKEN"), Ok(None))
}

/// Returns an environment variable, unless it is empty. Removes white space around it: the value is often the content of
/// a file that ends with a line break.
fn environment(name: &str) -> Result<Option<String>, CliError> {
    let Some(value) = std::env::var_os(name) else { return Ok(None) };
    let value = value.into_string().map_err(|_| CliError::Usage(format!("{name} is not valid UTF-8")))?;
    Ok(Some(value.trim().to_owned()).filter(|value| !value.is_empty()))
}

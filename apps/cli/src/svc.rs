//! What a command works on: an API, somebody's credential there, and a project.

use std::path::Path;

use client::{Client, Secret};

use crate::config::Config;
use crate::failure::Failure;
use crate::link::Link;
use crate::output::Output;

/// Where `cargo xtask dev` puts it.
const DEFAULT_API: &str = "http://127.0.0.1:8080";
const USER_AGENT: &str = concat!("svc/", env!("CARGO_PKG_VERSION"));

/// What the command line says of it.
pub struct Given {
    pub api: Option<String>,
    pub org: Option<String>,
    pub project: Option<String>,
}

pub struct Svc<'a> {
    pub out: &'a Output,
    /// The API's address, as credentials are kept by.
    pub api: String,
    /// The API as nobody in particular.
    pub anyone: Client,
    given: Given,
    link: Option<Link>,
    /// Whether only a file in the folder names the API.
    pub is_linked: bool,
}

impl<'a> Svc<'a> {
    /// Finds the API: the one that the command line or the environment names, the folder's, the one that was signed in
    /// at last, that of this machine.
    pub fn find(given: Given, folder: &Path, out: &'a Output) -> Result<Self, Failure> {
        let link = Link::find(folder)?;
        let named = given.api.clone().or_else(|| environment("SVC_CLI_API"));
        let is_linked = named.is_none() && link.is_some();
        let api = match named.or_else(|| link.as_ref().map(|link| link.api.clone())) {
            Some(api) => api,
            None => Config::read()?.current.unwrap_or_else(|| DEFAULT_API.to_owned()),
        };
        let anyone = Client::new(&api, USER_AGENT)?;
        let api = anyone.base().as_str().trim_end_matches('/').to_owned();
        Ok(Self { out, api, anyone, given, link, is_linked })
    }

    /// The API as whoever is signed in.
    pub fn client(&self) -> Result<Client, Failure> {
        let credential = self.credential()?.ok_or_else(|| Failure::SignedOut(self.api.clone()))?;
        Ok(self.anyone.clone().with_credential(credential))
    }

    pub fn credential(&self) -> Result<Option<Secret>, Failure> {
        match environment("SVC_CLI_TOKEN") {
            Some(token) => self.chosen("SVC_CLI_TOKEN is set").map(|()| Some(Secret::new(token))),
            None => Ok(Config::read()?.credentials.remove(&self.api)),
        }
    }

    /// Fails where only the folder names the API: whoever made the folder must not choose who gets a token.
    pub fn chosen(&self, what: &str) -> Result<(), Failure> {
        if !self.is_linked {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "{what}, and only the folder says that it is for {0}: say it yourself, by --api {0} or SVC_CLI_API",
            self.api
        )))
    }

    pub fn org(&self) -> Result<String, Failure> {
        let named = self.given.org.clone().or_else(|| Some(self.link.as_ref()?.org.clone()));
        named.ok_or_else(|| Failure::Usage("which organization? Say --org, or link the folder with `svc init`".into()))
    }

    /// Organization and project. The folder's project is that of the folder's organization, and of no other.
    pub fn project(&self) -> Result<(String, String), Failure> {
        let org = self.org()?;
        let linked = || Some(self.link.as_ref().filter(|link| link.org == org)?.project.clone());
        let project = self.given.project.clone().or_else(linked);
        let project = project
            .ok_or_else(|| Failure::Usage("which project? Say --project, or link the folder with `svc init`".into()))?;
        Ok((org, project))
    }
}

/// A variable of the environment, unless it is empty.
fn environment(name: &str) -> Option<String> {
    std::env::var_os(name)?.into_string().ok().filter(|value| !value.is_empty())
}

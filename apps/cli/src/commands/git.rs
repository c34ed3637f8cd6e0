//! `svc git`: lets git use the repositories of a project with the session of `svc`.

use std::collections::BTreeMap;
use std::io::{Read as _, stdin};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, SecondsFormat};
use client::types::{NewAccessToken, Scope};
use client::{Client, Secret};
use ring::digest::{SHA256, digest};
use url::Url;

use super::device::now;
use crate::config::{Config, GitToken};
use crate::error::CliError;
use crate::prompt;
use crate::svc::Svc;

/// The lifetime of a token that git uses.
const LIFETIME_SECONDS: u64 = 12 * 3600;
/// A token that expires within this time is replaced.
const MARGIN_SECONDS: u64 = 300;
/// The user name that git sends. The API ignores it.
const USER: &str = "svc";

#[derive(clap::Subcommand)]
pub enum Git {
    /// Add a repository as a remote of this folder, and let git sign in with the session of svc
    Setup {
        /// Name of the repository
        repository: String,
        /// Name of the remote. An existing one gets the URL of the repository
        #[arg(long, value_name = "NAME", default_value = "origin")]
        remote: String,
        /// Do not ask for confirmation before the URL of a remote is replaced
        #[arg(long)]
        yes: bool,
    },
    /// Answer git, which runs this as its credential helper
    #[command(hide = true)]
    Credential { operation: String },
}

impl Git {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        match self {
            Self::Setup { repository, remote, yes } => setup(svc, &repository, &remote, yes).await,
            Self::Credential { operation } => credential(svc, &operation).await,
        }
    }
}

/// Returns a URL without its user name and password, which can be a token.
fn without_credentials(url: &str) -> String {
    let Ok(mut parsed) = Url::parse(url) else { return url.to_owned() };
    let is_removed = parsed.set_username("").is_ok() && parsed.set_password(None).is_ok();
    if is_removed { parsed.to_string() } else { url.to_owned() }
}

async fn setup(svc: &Svc<'_>, repository: &str, remote: &str, yes: bool) -> Result<(), CliError> {
    let (org, project) = svc.project()?;
    let repo = svc.client()?.repos_get(&org, &project, repository).send().await?;
    let url = repo.clone_urls.https.clone();
    let url = url.ok_or_else(|| CliError::Other("this platform serves no repositories over HTTPS".to_owned()))?;
    let program = std::env::current_exe()?;
    let program = program.to_str().ok_or_else(|| CliError::Other("the path of svc is not UTF-8".to_owned()))?;
    let helper = format!("!{} git credential --api {}", quote(program), quote(&svc.api));
    let known = run(&["remote"])?.lines().any(|known| known == remote);
    let former = run(&["config", "--default", "", "--get", &format!("remote.{remote}.url")])?;
    let former = former.trim_end();
    if !former.is_empty() && former != url {
        svc.out.info(format!("The remote {remote} has the URL {}", without_credentials(former)));
        prompt::require_yes(yes, &format!("Replace it by {url}?"), "changed")?;
    }
    // Only a login session can create a token. Without one, the error appears here instead of in `git push`.
    token(svc).await?;
    let change = if known { "set-url" } else { "add" };
    run(&["remote", change, remote, &url])?;
    let section = format!("credential.{}", origin(&url)?);
    // An empty value removes the helpers of the machine, which would store the token.
    run(&["config", "--replace-all", &format!("{section}.helper"), ""])?;
    run(&["config", "--add", &format!("{section}.helper"), &helper])?;
    svc.out.response(&repo, |_| url.clone())?;
    // The configuration can have another URL for pushes.
    let pushed = run(&["remote", "get-url", "--push", "--all", remote])?;
    if pushed.trim_end() == url {
        svc.out.success(format!("git push {remote} now works with your session at {}", svc.api));
    } else {
        let pushed = pushed.lines().map(without_credentials).collect::<Vec<_>>().join(" and ");
        svc.out.warn(format!("git push {remote} does not go to this repository, but to {pushed}"));
    }
    Ok(())
}

/// Answers a request of git (gitcredentials(7)).
async fn credential(svc: &Svc<'_>, operation: &str) -> Result<(), CliError> {
    let mut request = String::new();
    stdin().read_to_string(&mut request)?;
    let attributes: BTreeMap<&str, &str> = request.lines().filter_map(|line| line.split_once('=')).collect();
    let attribute = |name: &str| attributes.get(name).copied().unwrap_or_default();
    let asked = format!("{}://{}", attribute("protocol"), attribute("host"));
    match operation {
        "get" => {
            let GitToken { url, token, .. } = token(svc).await?;
            // The token is for the git node of this API, not for another host that the folder's configuration names.
            if url == asked {
                svc.out.data(&format!("username={USER}\npassword={}\n", token.reveal()))?;
            }
        }
        // git sends `erase` if the platform rejected the token, and without a password if the user wants to forget all.
        "erase" => {
            let password = attributes.get("password");
            let _lock = Config::lock()?;
            let mut config = Config::read()?;
            if let Some(known) = config.git_tokens.get_mut(&svc.api) {
                known.retain(|known| known.url != asked || password.is_some_and(|it| known.token.reveal() != *it));
                config.write()?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Returns the stored token for git, or creates one.
async fn token(svc: &Svc<'_>) -> Result<GitToken, CliError> {
    if let Some(known) = stored_token(svc, &credential_digest(&svc.require_credential()?))? {
        return Ok(known);
    }
    let git_url = svc.client()?.service_config().send().await?.git_url.clone();
    let git_url =
        git_url.ok_or_else(|| CliError::Other("this platform serves no repositories over HTTPS".to_owned()))?;
    let url = origin(&git_url)?;
    // A sign-in or a logout of another process waits until the token is stored, and then revokes it.
    let _lock = Config::lock()?;
    let credential = svc.require_credential()?;
    let creator = credential_digest(&credential);
    // Another process may have created one before the lock.
    if let Some(known) = stored_token(svc, &creator)? {
        return Ok(known);
    }
    // The renewal of a credential would wait for the lock. Only the tokens of devices have one, and they cannot create
    // tokens.
    let client = svc.anonymous.clone().with_credential(credential);
    let expires_at = now() + LIFETIME_SECONDS;
    let time = i64::try_from(expires_at).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    let new = NewAccessToken {
        name: "svc git".to_owned(),
        // A push to a deploy branch is deployed with the token of the push.
        scopes: vec![Scope::from("git:write"), Scope::from("deploy")],
        expires_at: time.map(|time| time.to_rfc3339_opts(SecondsFormat::Secs, true)),
        restrict: None,
    };
    let created = client.credentials_token_create(&new).send().await?;
    let token = GitToken { url, token: created.token.clone(), id: created.id.clone(), creator, expires_at };
    let mut config = Config::read()?;
    let known = config.git_tokens.entry(svc.api.clone()).or_default();
    // The tokens of other credentials remain valid, and must still be revoked.
    known.retain(|known| known.creator != token.creator && known.expires_at > now());
    known.push(token.clone());
    config.write()?;
    Ok(token)
}

/// Returns the stored token if this credential created it and it does not expire soon.
fn stored_token(svc: &Svc<'_>, creator: &str) -> Result<Option<GitToken>, CliError> {
    let stored = Config::read()?.git_tokens.remove(&svc.api).unwrap_or_default();
    let is_usable = |token: &GitToken| token.creator == creator && token.expires_at > now() + MARGIN_SECONDS;
    Ok(stored.into_iter().find(is_usable))
}

fn credential_digest(credential: &Secret) -> String {
    STANDARD.encode(digest(&SHA256, credential.reveal().as_bytes()))
}

/// Revokes tokens that this machine no longer uses. Only a login session of their user can revoke them.
pub async fn revoke(svc: &Svc<'_>, session: Option<&Client>, tokens: &[GitToken]) {
    const REMAINS_VALID: &str = "the token of git was not revoked, and remains valid until it expires";
    for token in tokens.iter().filter(|token| token.expires_at > now()) {
        let Some(session) = session else { return svc.out.warn(REMAINS_VALID) };
        if let Err(error) = session.credentials_token_revoke(&token.id).send().await {
            svc.out.warn(format!("{REMAINS_VALID}: {error}"));
        }
    }
}

/// Returns the scheme and the host of a URL, with its port if that is not the default.
fn origin(url: &str) -> Result<String, CliError> {
    let url = Url::parse(url).map_err(|_| CliError::Other("the API returned a malformed URL".to_owned()))?;
    Ok(url.origin().ascii_serialization())
}

/// Quotes a text as one word of a shell.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Runs git in the folder. Returns its output.
fn run(arguments: &[&str]) -> Result<String, CliError> {
    let output = Command::new("git").args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| CliError::Other(format!("cannot start git: {error}")))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(CliError::Other(format!("git {} failed: {}", arguments.join(" "), message.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_origins_are_exact() {
        assert_eq!(quote("a b'c"), r"'a b'\''c'");
        assert_eq!(origin("https://git.example/a/b.git").unwrap(), "https://git.example");
        assert_eq!(origin("http://127.0.0.1:8093/a").unwrap(), "http://127.0.0.1:8093");
    }
}

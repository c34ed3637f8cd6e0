//! `svc tokens`: personal access tokens.

use chrono::DateTime;
use client::types::{AccessToken, NewAccessToken, Restrict, Restriction, Scope};

use super::device::now;
use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::or_dash;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Tokens {
    /// List your tokens, newest first
    List(PageArgs),
    /// Create a token, which is shown only once
    Create(Create),
    /// Revoke a token
    Revoke {
        /// ID of the token
        id: String,
    },
}

#[derive(clap::Args)]
pub struct Create {
    name: String,
    /// Scope of the token (repeatable)
    #[arg(long = "scope", value_name = "SCOPE", required = true,
          value_parser = clap::builder::PossibleValuesParser::new(Scope::KNOWN))]
    scopes: Vec<String>,
    /// Expiry time, such as 2030-01-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    /// Restrict the token to this organization
    #[arg(long, value_name = "SLUG")]
    only_org: Option<String>,
    /// Restrict the token to this project of the organization (repeatable)
    #[arg(long = "only-project", value_name = "NAME", requires = "only_org")]
    only_projects: Vec<String>,
    /// Restrict the token to this zone of the organization (repeatable)
    #[arg(long = "only-zone", value_name = "NAME", requires = "only_org")]
    only_zones: Vec<String>,
}

impl Tokens {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let client = svc.client()?;
        match self {
            Self::List(page) => {
                let page = client.credentials_tokens(&page.paging()).send().await?;
                svc.out.page(&page, ["ID", "NAME", "SCOPES", "RESTRICTED TO", "STATE"], row)
            }
            Self::Create(create) => {
                let token = client.credentials_token_create(&create.into()).send().await?;
                svc.out.response(&token, |token| token.token.reveal().to_owned())?;
                svc.out.success(format!("created the token {} ({}); it is not shown again", token.name, token.id));
                Ok(())
            }
            Self::Revoke { id } => {
                let revoked = client.credentials_token_revoke(&id).send().await?;
                svc.out.empty_response(&revoked, format!("revoked {id}"))
            }
        }
    }
}

impl From<Create> for NewAccessToken {
    fn from(create: Create) -> Self {
        let Create { name, scopes, expires_at, only_org, only_projects, only_zones } = create;
        let nonempty = |names: Vec<String>| Some(names).filter(|names| !names.is_empty());
        let (projects, zones) = (nonempty(only_projects), nonempty(only_zones));
        let scopes = scopes.iter().map(|scope| Scope::from(scope.as_str())).collect();
        Self { name, scopes, expires_at, restrict: only_org.map(|org| Restrict { org, projects, zones }) }
    }
}

fn row(token: &AccessToken) -> [String; 5] {
    let scopes: Vec<&str> = token.scopes.iter().map(Scope::as_str).collect();
    let restriction = or_dash(token.restrict.as_ref().map(show_restriction).as_deref());
    let state = match (&token.revoked_at, &token.expires_at) {
        (Some(at), _) => format!("revoked {at}"),
        (None, Some(at)) if is_past(at) => format!("expired {at}"),
        (None, Some(at)) => format!("until {at}"),
        (None, None) => or_dash(None),
    };
    [token.id.clone(), token.name.clone(), scopes.join(" "), restriction, state]
}

fn show_restriction(Restriction { org, projects, zones }: &Restriction) -> String {
    if projects.is_none() && zones.is_none() {
        return org.clone();
    }
    let projects = projects.iter().flatten().map(|name| format!("project {name}"));
    let zones = zones.iter().flatten().map(|name| format!("zone {name}"));
    let targets = projects.chain(zones).collect::<Vec<_>>().join(", ");
    // All targets may be deleted.
    format!("{org}: {}", or_dash(Some(targets.as_str()).filter(|targets| !targets.is_empty())))
}

fn is_past(time: &str) -> bool {
    let seconds = DateTime::parse_from_rfc3339(time).ok().and_then(|time| u64::try_from(time.timestamp()).ok());
    seconds.is_some_and(|seconds| seconds <= now())
}

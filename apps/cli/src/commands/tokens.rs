//! Personal access tokens.

use client::types::{AccessToken, NewAccessToken, Restrict, Scope};

use crate::failure::Failure;
use crate::options::Part;
use crate::output::or_dash;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Tokens {
    /// Your tokens, newest first
    List(Part),
    /// Create a token; it is shown this once
    Create(Create),
    /// Revoke a token
    Revoke {
        /// Its id
        id: String,
    },
}

#[derive(clap::Args)]
pub struct Create {
    name: String,
    /// What it may do; more than once for more
    #[arg(long = "scope", value_name = "SCOPE", required = true,
          value_parser = clap::builder::PossibleValuesParser::new(Scope::KNOWN))]
    scopes: Vec<String>,
    /// When it ends, such as 2030-01-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    expires_at: Option<String>,
    /// Limit it to this organization
    #[arg(long, value_name = "SLUG")]
    only_org: Option<String>,
    /// Limit it to this project of it; more than once for more
    #[arg(long = "only-project", value_name = "NAME", requires = "only_org")]
    only_projects: Vec<String>,
    /// Limit it to this zone of it; more than once for more
    #[arg(long = "only-zone", value_name = "NAME", requires = "only_org")]
    only_zones: Vec<String>,
}

impl Tokens {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), Failure> {
        let client = svc.client()?;
        match self {
            Self::List(part) => {
                let page = client.credentials_tokens(&part.paging()).send().await?;
                svc.out.list(&page, ["ID", "NAME", "SCOPES", "STATE"], row)
            }
            Self::Create(create) => {
                let token = client.credentials_token_create(&create.into()).send().await?;
                svc.out.answer(&token, |token| token.token.reveal().to_owned())?;
                svc.out.done(format!("created the token {} ({}); it is not shown again", token.name, token.id));
                Ok(())
            }
            Self::Revoke { id } => {
                let revoked = client.credentials_token_revoke(&id).send().await?;
                svc.out.gone(&revoked, format!("revoked {id}"))
            }
        }
    }
}

impl From<Create> for NewAccessToken {
    fn from(create: Create) -> Self {
        let Create { name, scopes, expires_at, only_org, only_projects, only_zones } = create;
        let named = |names: Vec<String>| Some(names).filter(|names| !names.is_empty());
        let (projects, zones) = (named(only_projects), named(only_zones));
        let scopes = scopes.iter().map(|scope| Scope::from(scope.as_str())).collect();
        Self { name, scopes, expires_at, restrict: only_org.map(|org| Restrict { org, projects, zones }) }
    }
}

fn row(token: &AccessToken) -> [String; 4] {
    let scopes: Vec<&str> = token.scopes.iter().map(Scope::as_str).collect();
    let state = match (&token.revoked_at, &token.expires_at) {
        (Some(at), _) => format!("revoked {at}"),
        (None, Some(at)) => format!("until {at}"),
        (None, None) => or_dash(None),
    };
    [token.id.clone(), token.name.clone(), scopes.join(" "), state]
}

//! The identity providers at which end users of deployed apps sign in: a code host with OAuth 2.0, as GitHub implements
//! it, and two OpenID providers (OpenID Connect Core 1.0, Discovery 1.0). Each app registers its own client (RFC 7591).

mod client;
mod fault;
mod id_token;
mod page;
mod person;
mod provider;
mod server;

use crate::http::{Request, Response, is_within};
pub use client::IdentityClient;
pub use fault::{IdTokenFault, IdentityEndpoint, IdentityFault};
pub use person::Person;
use provider::Provider;
pub use server::IdentityServer;

/// The page about the providers. Their addresses are below this path.
const PATH: &str = "/identity";

/// An identity provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdentityProvider {
    /// OAuth 2.0, with the user as GitHub returns it.
    CodeHost,
    /// OpenID Connect. Its ID tokens are signed with RS256.
    WebAccount,
    /// OpenID Connect. Its ID tokens are signed with ES256.
    Messenger,
}

impl IdentityProvider {
    /// All providers.
    pub const ALL: [Self; 3] = [Self::CodeHost, Self::WebAccount, Self::Messenger];

    /// Returns the name in addresses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CodeHost => "codehost",
            Self::WebAccount => "webaccount",
            Self::Messenger => "messenger",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::CodeHost => "Code host",
            Self::WebAccount => "Web account",
            Self::Messenger => "Messenger",
        }
    }

    fn is_openid(self) -> bool {
        self != Self::CodeHost
    }
}

/// All providers behind one listener.
#[derive(Debug)]
pub(crate) struct Identity([Provider; 3]);

impl Identity {
    /// Creates the providers. `base` is the address at which browsers reach them.
    pub fn new(base: &str) -> Self {
        Self(IdentityProvider::ALL.map(|provider| Provider::new(provider, base)))
    }

    /// Returns whether a request is for a provider or the page.
    pub fn serves(path: &str) -> bool {
        is_within(path, PATH)
    }

    /// Responds to a request. Returns `None` to close the connection without a response.
    pub async fn respond(&self, request: &Request) -> Option<Response> {
        if request.path == PATH {
            return Some(self.page());
        }
        let found = self.0.iter().find_map(|provider| Some((provider, provider.path_of(request)?)));
        match found {
            Some((provider, path)) => provider.respond(request, path).await,
            None => Some(Response::new(404, "text/plain; charset=utf-8", "There is no such provider.")),
        }
    }

    fn provider(&self, provider: IdentityProvider) -> &Provider {
        self.0.iter().find(|it| it.provider == provider).unwrap()
    }
}

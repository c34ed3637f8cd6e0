//! The policies of routes without user credentials, and the policy of nodes.

use actix_web::dev::Payload;
use actix_web::{HttpRequest, web};
use convergence::{Convergence, NodeKind};
use kernel::audit::Actor;
use kernel::{Code, NodeId, Token};

use super::authenticate::{anonymous_actor, count_anonymous};
use super::credential::node_token;
use crate::http::{Describe, Extract, Operation, Policy, PolicyTarget};
use crate::limits::{Limit, OAuthEndpoint};
use crate::problem::Problem;

/// Any caller, without a rate limit.
#[derive(Debug)]
pub struct Open {
    pub actor: Actor,
}

/// A node for projects, on the internal listener.
#[derive(Debug)]
pub struct NodeCaller {
    pub node: NodeId,
    token: Token,
}

/// The git node, on the internal listener.
#[derive(Debug)]
pub struct GitNodeCaller {
    pub node: NodeId,
}

/// A mail node, on the internal listener.
#[derive(Debug)]
pub struct MailNodeCaller {
    pub node: NodeId,
}

impl Describe for Open {
    fn describe(_: &mut Operation) {}
}

impl Extract for Open {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        Ok(Self { actor: anonymous_actor(request) })
    }
}

impl Policy for Open {}

/// Declares policies that accept any caller, and count requests by address.
macro_rules! counted {
    ($($(#[$doc:meta])* $policy:ident by $limit:expr;)+) => { $(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $policy {
            pub actor: Actor,
        }

        impl Describe for $policy {
            fn describe(operation: &mut Operation) {
                operation.code(&Code::RATE_LIMITED);
            }
        }

        impl Extract for $policy {
            async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
                count_anonymous(request, payload, $limit).await?;
                Ok(Self { actor: anonymous_actor(request) })
            }
        }

        impl Policy for $policy {}
    )+ };
}

counted! {
    /// Any caller of a sign-in endpoint. The limit of each address is low.
    SignIn by Limit::SignIn;
    /// Any caller with a secret in the path, such as an invitation token. The limit of each address is low.
    Preview by Limit::Preview;
    /// A client at the token endpoint.
    TokenCaller by Limit::OAuthAddress(OAuthEndpoint::Token);
    /// A client at the revocation endpoint.
    RevokeCaller by Limit::OAuthAddress(OAuthEndpoint::Revoke);
    /// A client at the device authorization endpoint.
    DeviceCaller by Limit::OAuthAddress(OAuthEndpoint::Device);
    /// Any caller, with the general limit for each address.
    Anonymous by Limit::General;
}

macro_rules! node_policies {
    ($($policy:ident: $kind:expr, |$node:ident, $token:ident| $value:expr;)+) => { $(
        impl Describe for $policy {
            fn describe(operation: &mut Operation) {
                operation.target = PolicyTarget::Node;
                operation.code(&Code::UNAUTHENTICATED);
            }
        }

        impl Extract for $policy {
            async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
                let $token = node_token(request)?;
                let nodes = web::Data::<Convergence>::extract(request, payload).await?;
                let $node = nodes.authenticate(&$token, $kind).await?;
                Ok($value)
            }
        }

        impl Policy for $policy {}
    )+ };
}

node_policies! {
    NodeCaller: NodeKind::App, |node, token| NodeCaller { node, token };
    GitNodeCaller: NodeKind::Git, |node, token| GitNodeCaller { node };
    MailNodeCaller: NodeKind::Mail, |node, token| MailNodeCaller { node };
}

impl NodeCaller {
    /// Checks the credential again. It may have been renewed or revoked while the request waited.
    pub(crate) async fn authenticate_again(&self, nodes: &Convergence) -> Result<(), Problem> {
        nodes.authenticate(&self.token, NodeKind::App).await?;
        Ok(())
    }
}

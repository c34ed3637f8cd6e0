//! The policies of routes that need no credential, and that of nodes.

use actix_web::dev::Payload;
use actix_web::{HttpRequest, web};
use convergence::Convergence;
use kernel::audit::Actor;
use kernel::{Code, NodeId};

use super::credential::node_token;
use super::find::{count, nobody};
use crate::http::{Describe, Extract, Operation, Place, Policy};
use crate::limits::Limit;
use crate::problem::Problem;
use crate::protocol;

/// Anyone, signed in or not.
#[derive(Debug)]
pub struct Open {
    pub actor: Actor,
}

/// A node of the platform, on the internal listener.
#[derive(Debug)]
pub struct AsNode {
    pub node: NodeId,
}

impl Describe for Open {
    fn describe(_: &mut Operation) {}
}

impl Extract for Open {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        Ok(Self { actor: nobody(request) })
    }
}

impl Policy for Open {}

/// Anyone, counted by address.
macro_rules! counted {
    ($($(#[$doc:meta])* $policy:ident by $limit:expr;)+) => { $(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $policy {
            pub actor: Actor,
        }

        impl Describe for $policy {
            fn describe(operation: &mut Operation) {
                operation.code(&protocol::RATE_LIMITED);
            }
        }

        impl Extract for $policy {
            async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
                count(request, payload, $limit).await?;
                Ok(Self { actor: nobody(request) })
            }
        }

        impl Policy for $policy {}
    )+ };
}

counted! {
    /// Anyone who comes to sign in: few requests for each address.
    SignIn by Limit::SignIn;
    /// Anyone who looks at what a secret in the path opens: few requests for each address.
    Preview by Limit::Preview;
    /// Anyone, counted by address like a caller.
    Stranger by Limit::General;
}

impl Describe for AsNode {
    fn describe(operation: &mut Operation) {
        operation.place = Place::Node;
        operation.code(&Code::UNAUTHENTICATED);
    }
}

impl Extract for AsNode {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let token = node_token(request)?;
        let nodes = web::Data::<Convergence>::extract(request, payload).await?;
        Ok(Self { node: nodes.nodes().authenticate(&token).await? })
    }
}

impl Policy for AsNode {}

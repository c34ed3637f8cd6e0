//! Who may call a route: types that state the place, the least role and the scope, and find all of it out in one
//! statement.
//!
//! The order of the checks is fixed, so that a refusal tells no more than it must: the credential (401), the scope
//! (403), the organization (404), the membership and the role (403, the same whatever lies within), the project (404).

mod account;
mod anyone;
mod credential;
mod find;
mod keyed;
mod place;
mod resolve;

pub use account::{Session, SignedIn, SignedInPart, ThisToken};
pub use anyone::{AsNode, Open, Preview, SignIn, Stranger};
pub use keyed::{Keyed, KeyedOrg, KeyedOrgPlace, KeyedZone};
pub use place::{InOrg, InOrgPart, InProject, OrgPlace, ProjectPlace};

/// Policies that know who acts.
macro_rules! of_a_caller {
    ($([$($generics:tt)*] $policy:ty;)+) => { $(
        impl<$($generics)*> crate::http::Policy for $policy {
            fn actor(&mut self) -> Option<&mut kernel::audit::Actor> {
                Some(&mut self.actor)
            }
        }
    )+ };
}
use of_a_caller;

/// The least role of a route, as a type.
pub mod role {
    use kernel::Role;

    /// A role that a route asks for.
    pub trait AtLeast: 'static {
        /// The role.
        const ROLE: Role;
    }

    /// [`Role::Viewer`] or above.
    #[derive(Debug)]
    pub struct Viewer;
    /// [`Role::Member`] or above.
    #[derive(Debug)]
    pub struct Member;
    /// [`Role::Admin`].
    #[derive(Debug)]
    pub struct Admin;

    impl AtLeast for Viewer {
        const ROLE: Role = Role::Viewer;
    }
    impl AtLeast for Member {
        const ROLE: Role = Role::Member;
    }
    impl AtLeast for Admin {
        const ROLE: Role = Role::Admin;
    }
}

/// The scope of a route, as a type.
pub mod scope {
    use kernel::Scope;

    /// A scope that a route asks for.
    pub trait Needs: 'static {
        /// The scope.
        const SCOPE: Scope;
    }

    macro_rules! scopes {
        ($($name:ident),+) => { $(
            #[doc = concat!("[`Scope::", stringify!($name), "`].")]
            #[derive(Debug)]
            pub struct $name;

            impl Needs for $name {
                const SCOPE: Scope = Scope::$name;
            }
        )+ };
    }

    scopes!(AccountRead, OrgRead, OrgWrite, ProjectRead, ProjectWrite, Deploy, DnsRead, DnsWrite);
}

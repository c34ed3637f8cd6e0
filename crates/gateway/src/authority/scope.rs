//! The scope of a route, as a type.

use kernel::Scope;

/// The scope that a route requires.
pub trait RequiredScope: 'static {
    /// The scope.
    const SCOPE: Scope;
}

macro_rules! scopes {
    ($($name:ident),+) => { $(
        #[doc = concat!("[`Scope::", stringify!($name), "`].")]
        #[derive(Debug)]
        pub struct $name;

        impl RequiredScope for $name {
            const SCOPE: Scope = Scope::$name;
        }
    )+ };
}

scopes!(
    AccountRead,
    AiUse,
    BillingRead,
    BillingWrite,
    OrgRead,
    OrgWrite,
    ProjectRead,
    ProjectWrite,
    Deploy,
    DnsRead,
    DnsWrite,
    GitRead,
    GitWrite
);

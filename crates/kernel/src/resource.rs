//! The optional resources of a project. A manifest declares them, and a grant enables them.

use serde::Serialize;

crate::words! {
    /// An optional resource of a project.
    pub enum Resource {
        Auth = "auth",
        Database = "database",
        Email = "email",
        Ai = "ai",
        Storage = "storage",
    } example Storage
}

/// A flag for each optional resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(as = Resources, example = json!({
        "auth": false,
        "database": false,
        "email": false,
        "ai": false,
        "storage": false,
    }))
)]
pub struct ResourceSet {
    pub auth: bool,
    pub database: bool,
    pub email: bool,
    pub ai: bool,
    pub storage: bool,
}

impl ResourceSet {
    /// Returns the set of the resources that `has` accepts.
    #[must_use]
    pub fn from_fn(has: impl Fn(Resource) -> bool) -> Self {
        Self {
            auth: has(Resource::Auth),
            database: has(Resource::Database),
            email: has(Resource::Email),
            ai: has(Resource::Ai),
            storage: has(Resource::Storage),
        }
    }

    /// Returns whether the set contains this resource.
    #[must_use]
    pub const fn has(self, resource: Resource) -> bool {
        match resource {
            Resource::Auth => self.auth,
            Resource::Database => self.database,
            Resource::Email => self.email,
            Resource::Ai => self.ai,
            Resource::Storage => self.storage,
        }
    }

    /// Returns the resources of the set, in the order of [`Resource::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Resource> {
        Resource::ALL.iter().copied().filter(move |resource| self.has(*resource))
    }
}

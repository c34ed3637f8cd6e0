//! Organizations in the arguments of commands.

use std::convert::Infallible;
use std::str::FromStr;

use anyhow::{Context as _, Result};
use kernel::OrgId;
use orgs::OrgRepository as _;
use store::Store;

/// An organization by its id, or by its slug. A slug contains no `_`, so no id is a slug.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrgRef {
    Id(OrgId),
    Slug(String),
}

impl FromStr for OrgRef {
    type Err = Infallible;

    fn from_str(text: &str) -> std::result::Result<Self, Infallible> {
        Ok(text.parse().map_or_else(|_| Self::Slug(text.to_owned()), Self::Id))
    }
}

impl OrgRef {
    /// Returns the id. An id need not belong to an organization.
    ///
    /// # Errors
    /// Returns an error if no organization has the slug, or if Postgres is unavailable.
    pub async fn resolve(self, store: &Store) -> Result<OrgId> {
        match self {
            Self::Id(org) => Ok(org),
            Self::Slug(slug) => {
                let found = store.connection().await?.org_find_by_slug(&slug).await?;
                found.with_context(|| format!("no organization has the slug {slug}"))
            }
        }
    }
}

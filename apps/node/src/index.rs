//! What a bundle holds, as visitors see it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// The index of one bundle. A path that is not in it cannot be served, so no path can reach outside.
#[derive(Default, Serialize, Deserialize)]
pub struct Index {
    /// Whether the bundle has worker code.
    pub worker: bool,
    /// The assets by their decoded URL path, `/` first.
    pub assets: BTreeMap<String, Asset>,
}

/// One asset.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Asset {
    /// What its content is stored under.
    pub content: Digest,
    /// The content's size.
    pub size: u64,
}

/// What is at a path.
pub enum Found<'a> {
    /// An asset, and the name that tells its type.
    Asset(&'a str, Asset),
    /// A directory with an index page, lacking its trailing slash.
    Directory,
    /// Nothing.
    Nothing,
}

impl Index {
    /// Looks up a decoded path.
    pub fn find(&self, path: &str) -> Found<'_> {
        if path.ends_with('/') {
            return self.asset(&format!("{path}index.html"));
        }
        match self.asset(path) {
            Found::Nothing if self.assets.contains_key(&format!("{path}/index.html")) => Found::Directory,
            found => found,
        }
    }

    /// The site's own page for what is missing.
    pub fn not_found_page(&self) -> Found<'_> {
        self.asset("/404.html")
    }

    fn asset(&self, path: &str) -> Found<'_> {
        self.assets.get_key_value(path).map_or(Found::Nothing, |(name, asset)| Found::Asset(name, *asset))
    }
}

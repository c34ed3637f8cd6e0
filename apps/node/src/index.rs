//! What a bundle holds, as visitors see it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::coding::Coding;
use crate::digest::Digest;

/// The index of one bundle. A path that is not in it cannot be served, so no path can reach outside.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Index {
    /// Whether the bundle has worker code.
    pub worker: bool,
    /// Whether what is worth compressing has been.
    #[serde(default)]
    pub compressed: bool,
    /// That code. What a release wrote that did not run it lacks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
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
    /// Its size in gzip, if it is stored so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gzip: Option<u64>,
    /// Its size in brotli, if it is stored so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brotli: Option<u64>,
}

/// The worker code of a bundle.
#[derive(Clone, Serialize, Deserialize)]
pub struct Code {
    /// The first module.
    pub main: String,
    /// The date whose runtime behaviour it was written for.
    pub compatibility_date: Option<String>,
    /// The files under `worker/`, by their paths in it.
    pub modules: BTreeMap<String, Asset>,
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
    /// Whether it tells of everything in the bundle that this release knows of.
    pub const fn is_whole(&self) -> bool {
        self.worker == self.code.is_some()
    }

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

    /// Every content of the bundle. One that is not among these is not kept.
    pub fn contents(&self) -> impl Iterator<Item = &Asset> {
        self.assets.values().chain(self.code.iter().flat_map(|code| code.modules.values()))
    }

    fn asset(&self, path: &str) -> Found<'_> {
        self.assets.get_key_value(path).map_or(Found::Nothing, |(name, asset)| Found::Asset(name, *asset))
    }
}

impl Asset {
    /// An asset that is stored as it was deployed.
    pub const fn new(content: Digest, size: u64) -> Self {
        Self { content, size, gzip: None, brotli: None }
    }

    /// Its size in this coding, if it is stored so.
    pub const fn size_in(&self, coding: Coding) -> Option<u64> {
        match coding {
            Coding::Identity => Some(self.size),
            Coding::Gzip => self.gzip,
            Coding::Brotli => self.brotli,
        }
    }

    /// What it is stored in.
    pub fn codings(&self) -> impl Iterator<Item = Coding> {
        [Coding::Identity, Coding::Gzip, Coding::Brotli].into_iter().filter(|coding| self.size_in(*coding).is_some())
    }
}

//! The index of a bundle: its assets and worker code.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::coding::Coding;
use crate::digest::Digest;

/// The index of a bundle. Only paths in the index are served, so path traversal is impossible.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Index {
    /// Whether the bundle has worker code.
    pub worker: bool,
    /// Whether compression is complete.
    #[serde(default)]
    pub compressed: bool,
    /// The worker code. Missing in indexes of releases that did not run worker code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The assets by decoded URL path, with a leading `/`.
    pub assets: BTreeMap<String, Asset>,
}

/// One asset.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Asset {
    /// The digest of the content.
    pub content: Digest,
    /// The uncompressed size.
    pub size: u64,
    /// The size in gzip, if it is stored in gzip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gzip: Option<u64>,
    /// The size in brotli, if it is stored in brotli.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brotli: Option<u64>,
}

/// The worker code of a bundle.
#[derive(Clone, Serialize, Deserialize)]
pub struct Code {
    /// The main module.
    pub main: String,
    /// The compatibility date of the manifest.
    pub compatibility_date: Option<String>,
    /// Whether the manifest declares `ai`.
    #[serde(default)]
    pub declares_ai: bool,
    /// The files under `worker/`, by path relative to it.
    pub modules: BTreeMap<String, Asset>,
}

/// The result of looking up a path.
pub enum Entry<'a> {
    /// An asset, and the path that determines its media type.
    Asset(&'a str, Asset),
    /// A directory with an index page; the trailing slash is missing.
    Directory,
    Missing,
}

impl Index {
    /// Returns whether the index lists everything that this release needs.
    pub const fn is_complete(&self) -> bool {
        self.worker == self.code.is_some()
    }

    /// Looks up a decoded path.
    pub fn find(&self, path: &str) -> Entry<'_> {
        if path.ends_with('/') {
            return self.asset(&format!("{path}index.html"));
        }
        match self.asset(path) {
            Entry::Missing if self.assets.contains_key(&format!("{path}/index.html")) => Entry::Directory,
            found => found,
        }
    }

    /// Returns the site's own 404 page.
    pub fn not_found_page(&self) -> Entry<'_> {
        self.asset("/404.html")
    }

    /// Returns all contents of the bundle. Eviction removes blobs that no index lists.
    pub fn contents(&self) -> impl Iterator<Item = &Asset> {
        self.assets.values().chain(self.code.iter().flat_map(|code| code.modules.values()))
    }

    fn asset(&self, path: &str) -> Entry<'_> {
        self.assets.get_key_value(path).map_or(Entry::Missing, |(name, asset)| Entry::Asset(name, *asset))
    }
}

impl Asset {
    /// Creates an uncompressed asset.
    pub const fn new(content: Digest, size: u64) -> Self {
        Self { content, size, gzip: None, brotli: None }
    }

    /// Returns the size in this coding, if it is stored in it.
    pub const fn size_in(&self, coding: Coding) -> Option<u64> {
        match coding {
            Coding::Identity => Some(self.size),
            Coding::Gzip => self.gzip,
            Coding::Brotli => self.brotli,
        }
    }

    /// Returns the stored codings.
    pub fn codings(&self) -> impl Iterator<Item = Coding> {
        [Coding::Identity, Coding::Gzip, Coding::Brotli].into_iter().filter(|coding| self.size_in(*coding).is_some())
    }
}

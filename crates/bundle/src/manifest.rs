//! The manifest `svc.json`: the resources and settings that a project declares.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::{Reason, json};

/// The path of the manifest in a bundle.
pub const MANIFEST_PATH: &str = "svc.json";

/// The largest manifest. It is the only file that the reader holds in memory as a whole.
pub const MAX_MANIFEST_BYTES: u64 = 64 * 1024;

const DEFAULT_MAIN: &str = "worker/index.js";

/// The manifest of a bundle.
///
/// Use [`Manifest::parse`] for untrusted text. The `Deserialize` implementation accepts duplicate keys and is only for
/// stored manifests that were parsed before.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Manifest {
    /// The project signs in its own users. This also needs the database.
    pub auth: bool,
    /// The project has a database.
    pub database: bool,
    /// The project sends and receives mail.
    pub email: bool,
    /// The project calls models.
    pub ai: bool,
    /// The project stores objects.
    pub storage: bool,
    /// A display name from the author. It identifies nothing.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The worker's main module, as written; [`Manifest::main_path`] resolves it.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub main: Option<String>,
    /// The date that selects the runtime behavior for the worker. Passed on unchanged.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub compatibility_date: Option<String>,
    /// Keys that the platform does not know. They are kept, so that serializing the manifest loses nothing.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Manifest {
    /// Parses the text of an `svc.json`.
    ///
    /// # Errors
    ///
    /// Returns one of the `Manifest…` reasons, except [`Reason::ManifestMissing`].
    pub fn parse(text: &[u8]) -> Result<Self, Reason> {
        if text.len() as u64 > MAX_MANIFEST_BYTES {
            return Err(Reason::ManifestTooLarge);
        }
        let value = json::parse(text)?;
        if !value.is_object() {
            return Err(Reason::ManifestNotObject);
        }
        serde_json::from_value(value).map_err(|_| Reason::ManifestWrongType)
    }

    /// Returns the path of the worker's main module in the bundle.
    pub fn main_path(&self) -> &str {
        let main = self.main.as_deref().unwrap_or(DEFAULT_MAIN);
        main.strip_prefix("./").unwrap_or(main)
    }
}

/// Rejects `null`, which a plain `Option` would treat as a missing key.
fn non_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

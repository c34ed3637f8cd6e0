//! `svc.json`: what a project asks the platform for.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::{Reason, json};

/// Where the manifest is in a bundle.
pub const MANIFEST_PATH: &str = "svc.json";

/// How large a manifest may be: it is the one file that is held in memory as a whole.
pub const MANIFEST_MAX_BYTES: u64 = 64 * 1024;

const DEFAULT_MAIN: &str = "worker/index.js";

/// The manifest of a bundle.
///
/// Deserialising with serde is for what was stored after [`Manifest::parse`] let it through; of a stranger's text it
/// would accept duplicate keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Manifest {
    /// The project has users of its own who sign in. Wants the database, too.
    pub auth: bool,
    /// The project has a database.
    pub database: bool,
    /// The project sends and receives mail.
    pub email: bool,
    /// The project calls models.
    pub ai: bool,
    /// The project stores objects.
    pub storage: bool,
    /// What its author calls the project. Nothing is looked up by it.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The worker's first module as it was written; [`Manifest::main_path`] resolves it.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub main: Option<String>,
    /// The date whose runtime behaviour the worker was written for; passed on as it is.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub compatibility_date: Option<String>,
    /// Keys that mean nothing to the platform, kept so that writing the manifest again loses none.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Manifest {
    /// Reads the text of an `svc.json`.
    ///
    /// # Errors
    ///
    /// One of the `Manifest…` reasons; [`Reason::ManifestMissing`] is not among them.
    pub fn parse(text: &[u8]) -> Result<Self, Reason> {
        if text.len() as u64 > MANIFEST_MAX_BYTES {
            return Err(Reason::ManifestTooLarge);
        }
        let value = json::parse(text)?;
        if !value.is_object() {
            return Err(Reason::ManifestNotObject);
        }
        serde_json::from_value(value).map_err(|_| Reason::ManifestWrongType)
    }

    /// The path in the bundle of the worker's first module.
    pub fn main_path(&self) -> &str {
        let main = self.main.as_deref().unwrap_or(DEFAULT_MAIN);
        main.strip_prefix("./").unwrap_or(main)
    }
}

/// An `Option` would take `null` for absence; in a manifest `null` is a wrong type.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

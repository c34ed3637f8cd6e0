//! The desired state of a node.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::certificates::CertificateReference;

/// The schema version that this release writes and reads. It increases when a node that ignores the new fields or parts
/// would behave incorrectly.
pub const SCHEMA: u32 = 7;

/// A part of a project's desired state. One context owns it and is the only one that writes it.
pub trait DesiredPart: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The part's name on the wire and in the database.
    const NAME: &'static str;
}

/// The desired state of a node, or the changes to it since a revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Desired {
    /// The version of this document's schema.
    pub schema: u32,
    /// The `since` of the next request.
    pub revision: i64,
    /// Whether this is the full state: a part that is not listed is not desired.
    pub full: bool,
    /// Whether the response is a page that others follow: request the changes after `revision`, and apply all pages
    /// together. Only the first page of a full state has `full`. Earlier schemas have no pages.
    #[serde(default)]
    pub has_more: bool,
    /// The number of the last batch of reports that the control plane accepted from this node.
    pub batch: i64,
    pub platform: Platform,
    /// The parts, by ascending revision.
    pub parts: Vec<Change>,
    /// The parts whose values the control plane could not read. They are not in `parts`. The node keeps their last state,
    /// even if this response is a full state.
    #[serde(default)]
    pub unavailable: Vec<UnavailablePart>,
}

/// A desired part of a project whose value the control plane could not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct UnavailablePart {
    /// an id that starts with prj_
    #[cfg_attr(feature = "openapi", schema(pattern = "^prj_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub project: String,
    /// The part's name.
    pub part: String,
}

/// One part of a project's desired state.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// an id that starts with prj_
    #[cfg_attr(feature = "openapi", schema(pattern = "^prj_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub project: String,
    /// The node's revision at which the part last changed.
    pub revision: i64,
    /// The part's name. A node ignores a part that it does not know.
    pub part: String,
    /// The content of the part; null if the part is no longer desired.
    #[cfg_attr(feature = "openapi", schema(required, value_type = Option<crate::desired::AnyPart>))]
    pub desired: Option<Value>,
}

/// How visitors reach the node, and where it sends them to sign in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Platform {
    /// The base address of the dashboard. Its page `/access/authorize` grants members access.
    pub dashboard_url: String,
    /// The address of a site with `{hostname}` as a placeholder. If it begins with `https:`, visitors use TLS, which the
    /// node or a proxy in front of it terminates.
    pub site_url: String,
    /// The certificates of the platform's domain, which every node serves. They are in every response.
    #[serde(default)]
    pub certificates: Vec<CertificateReference>,
}

/// Every part, for the schema of [`Change::desired`].
#[cfg(feature = "openapi")]
#[derive(Serialize, utoipa::ToSchema)]
#[serde(untagged)]
#[schema(as = DesiredPart)]
#[expect(dead_code, reason = "describes a schema; nothing constructs it")]
pub(crate) enum AnyPart {
    Ai(crate::Ai),
    Auth(crate::Auth),
    Certificates(crate::Certificates),
    Database(crate::Database),
    Email(crate::Email),
    Secrets(crate::Secrets),
    Site(crate::Site),
    Storage(crate::Storage),
    DeletedStorage(crate::DeletedStorage),
    DeletedBackups(crate::DeletedBackups),
}

impl Platform {
    /// Returns the address at which visitors reach a hostname, without a trailing slash.
    #[must_use]
    pub fn site_url(&self, hostname: &str) -> String {
        self.site_url.replace("{hostname}", hostname)
    }

    /// Returns whether visitors use https.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.site_url.starts_with("https:")
    }
}

impl Change {
    /// Creates a change of the part `P`; `None` means that the part is no longer desired.
    ///
    /// # Errors
    /// Returns an error if the part cannot be serialized as JSON.
    pub fn new<P: DesiredPart>(project: String, revision: i64, desired: Option<&P>) -> serde_json::Result<Self> {
        let desired = desired.map(serde_json::to_value).transpose()?;
        Ok(Self { project, revision, part: P::NAME.to_owned(), desired })
    }

    /// Returns the content of the part `P`, or `None` if this is another part. The inner `None` means that the part is
    /// no longer desired.
    ///
    /// # Errors
    /// Returns an error if the content does not match the type of the part.
    pub fn read<P: DesiredPart>(&self) -> serde_json::Result<Option<Option<P>>> {
        if self.part != P::NAME {
            return Ok(None);
        }
        self.desired.as_ref().map(P::deserialize).transpose().map(Some)
    }
}

/// Omits the content of the part, which may contain credentials.
impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { project, revision, part, desired } = self;
        let (part, desired) = (part.as_str(), desired.is_some());
        write!(f, "Change {{ project: {project}, revision: {revision}, part: {part}, desired: {desired} }}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Motd(String);

    impl DesiredPart for Motd {
        const NAME: &'static str = "motd";
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Quota(u8);

    impl DesiredPart for Quota {
        const NAME: &'static str = "quota";
    }

    #[test]
    fn change_parses_only_as_its_part() {
        let change = Change::new("prj_1".to_owned(), 4, Some(&Motd("hello".to_owned()))).unwrap();
        let wire = json!({ "project": "prj_1", "revision": 4, "part": "motd", "desired": "hello" });
        assert_eq!(serde_json::to_value(&change).unwrap(), wire);
        assert_eq!(change.read::<Motd>().unwrap(), Some(Some(Motd("hello".to_owned()))));
        assert_eq!(change.read::<Quota>().unwrap(), None);
        let removed = Change::new::<Motd>("prj_1".to_owned(), 5, None).unwrap();
        assert_eq!(removed.read::<Motd>().unwrap(), Some(None));
        let wrong = Change { part: Quota::NAME.to_owned(), ..change.clone() };
        assert!(wrong.read::<Quota>().is_err());
        assert!(!format!("{change:?}").contains("hello"));
    }
}

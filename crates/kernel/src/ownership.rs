//! Proofs that an organization or a project owns a DNS name (contract sections 5 and 6).

use serde::Serialize;

use crate::{Digest, Time, ZoneId};

/// The length of a token: 160 bits, in hexadecimal digits.
const TOKEN_DIGITS: usize = 40;

/// The prefix of the names of TXT records.
const TXT_PREFIX: &str = "_svc-verify.";

crate::words! {
    /// The type of a verification record.
    pub enum VerifyRecordType {
        Txt = "TXT",
        Cname = "CNAME",
    }
}

/// A DNS record to publish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "type": "TXT",
        "name": "_svc-verify.www.example.org",
        "value": "svc-verify=6c1b3f0d9e2a4875b1c0d9e8f7a6b5c4d3e2f1a0",
    }))
)]
pub struct VerifyRecord {
    #[serde(rename = "type")]
    pub kind: VerifyRecordType,
    pub name: String,
    pub value: String,
}

impl VerifyRecord {
    /// The length of the longest name whose ownership a TXT record can prove. The name of the record has at most 253
    /// characters (RFC 1035 section 2.3.4).
    pub const MAX_OWNED_NAME: usize = 253 - TXT_PREFIX.len();

    /// Creates the TXT record that proves the ownership of a name with this token.
    #[must_use]
    pub fn txt(name: &str, token: &str) -> Self {
        let (name, value) = (format!("{TXT_PREFIX}{name}"), format!("svc-verify={token}"));
        Self { kind: VerifyRecordType::Txt, name, value }
    }
}

/// Returns the token with which the owner, an organization or a project, proves that it owns a name. The token depends
/// only on the id of the owner and the name. So the owner sees the same record before and after it has the name, and
/// another owner cannot use the record.
///
/// The token is not a secret: it is published in the DNS. It is a proof because only the owner of the domain can
/// publish it there.
#[must_use]
pub fn verification_token(owner: impl std::fmt::Display, name: &str) -> String {
    let mut token = Digest::of(format!("svc-verify\n{owner}\n{name}").as_bytes()).hex();
    token.truncate(TOKEN_DIGITS);
    token
}

/// The proof with which an organization creates a zone that overlaps with zones of other organizations. The default
/// proves nothing.
#[derive(Debug, Clone, Default)]
pub struct ZoneProof {
    /// The time of the proof. Overlapping zones that were created or deleted later need no check: otherwise, others
    /// could prevent the creation by creating zones all the time.
    pub at: Option<Time>,
    /// The overlapping zones that were checked: they give way, or are above the name.
    pub checked: Vec<ZoneId>,
}

/// The reason why a name cannot be taken over from its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakeoverObstacle {
    /// The TXT record is not published.
    NotPublished,
    /// The lookup of the record failed, with this message.
    LookupFailed(String),
    /// The TXT record of the holder is published, too.
    HolderProves,
    /// The name changed during the request.
    Changed,
}

impl TakeoverObstacle {
    /// Returns the next step for the user. `record` is the record with which the user can prove the ownership.
    #[must_use]
    pub fn advice(&self, record: &VerifyRecord) -> String {
        let VerifyRecord { name, value, .. } = record;
        match self {
            Self::NotPublished => format!(
                "to take it over, publish the TXT record {name} with the value {value} at the DNS provider of the \
                 domain, then send the request again"
            ),
            Self::LookupFailed(reason) => {
                format!("the lookup of the TXT record {name} failed: {reason}; try again in a moment")
            }
            Self::HolderProves => format!(
                "its TXT record is published next to yours; to take it over, delete all values at {name} except \
                 {value}, then send the request again"
            ),
            Self::Changed => "it changed during the request; send the request again".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verification_token_belongs_to_one_owner_and_name() {
        let [a, b] = [1, 2].map(|n| crate::ProjectId::from_uuid(uuid::Uuid::from_u128(n)));
        let token = verification_token(a, "www.example.org");
        assert!(token.len() == TOKEN_DIGITS && token.bytes().all(|b| b.is_ascii_hexdigit()), "{token}");
        assert_eq!(token, verification_token(a, "www.example.org"));
        for other in [verification_token(b, "www.example.org"), verification_token(a, "example.org")] {
            assert_ne!(token, other);
        }
    }
}

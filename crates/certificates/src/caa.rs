//! Certification Authority Authorization (RFC 8659), with the extensions of RFC 8657.

use std::time::Duration;

use crate::model::Challenge;
use crate::ports::Resolver;

/// A CAA record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaaRecord {
    /// Whether an authority must understand the tag (RFC 8659 section 4.1).
    pub critical: bool,
    pub tag: String,
    pub value: String,
}

/// The authority and the order that the records must allow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Issuance<'a> {
    /// The names of the authority. Empty if it does not state them: then only records that forbid every authority are
    /// recognized.
    pub(crate) identities: &'a [String],
    pub(crate) account_url: &'a str,
    pub(crate) challenge: Challenge,
}

/// The timeout of all lookups for a name.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the reason why the CAA records forbid to issue for `name`; `None` if they allow it. A failed lookup allows
/// it, because the authority repeats the check and explains its own failure.
pub(crate) async fn find_refusal(resolver: &dyn Resolver, name: &str, issuance: Issuance<'_>) -> Option<String> {
    let (is_wildcard, host) = name.strip_prefix("*.").map_or((false, name), |host| (true, host));
    match tokio::time::timeout(TIMEOUT, find_records(resolver, host)).await {
        Ok(Ok(found)) => found.and_then(|(owner, records)| refusal(owner, &records, is_wildcard, issuance)),
        Ok(Err(error)) => {
            tracing::debug!(name, error, "failed to look up CAA records");
            None
        }
        Err(_) => {
            tracing::debug!(name, "the lookup of CAA records took too long");
            None
        }
    }
}

/// Returns the closest name with records, and its records (RFC 8659 section 3).
async fn find_records<'a>(resolver: &dyn Resolver, host: &'a str) -> Result<Option<(&'a str, Vec<CaaRecord>)>, String> {
    let mut owner = host;
    loop {
        let records = resolver.caa(owner).await?;
        if !records.is_empty() {
            return Ok(Some((owner, records)));
        }
        let Some((_, parent)) = owner.split_once('.') else { return Ok(None) };
        owner = parent;
    }
}

fn refusal(owner: &str, records: &[CaaRecord], is_wildcard: bool, issuance: Issuance<'_>) -> Option<String> {
    let tagged = |tag: &'static str| records.iter().filter(move |record| record.tag.eq_ignore_ascii_case(tag));
    // `issuemail` limits only certificates for email (RFC 9495).
    let known = ["issue", "issuewild", "issuemail", "iodef"];
    let is_known = |tag: &str| known.iter().any(|known| tag.eq_ignore_ascii_case(known));
    if let Some(unknown) = records.iter().find(|record| record.critical && !is_known(&record.tag)) {
        return Some(format!("the CAA record {} of {owner} is critical, but unknown", unknown.tag));
    }
    // For a wildcard, `issuewild` takes precedence over `issue` (RFC 8659 section 4.3).
    let tag = if is_wildcard && tagged("issuewild").next().is_some() { "issuewild" } else { "issue" };
    let values: Vec<&str> = tagged(tag).map(|record| record.value.as_str()).collect();
    if values.is_empty() || values.iter().any(|value| allows(value, issuance)) {
        return None;
    }
    let required = match issuance.identities {
        [] => String::new(),
        identities => format!("; this platform uses {}", identities.join(" or ")),
    };
    let found = values.iter().map(|value| format!("{tag} {value:?}")).collect::<Vec<_>>().join(", ");
    Some(format!("the CAA records of {owner} allow only other authorities or methods ({found}){required}"))
}

/// Returns whether the value of an `issue` or `issuewild` property allows the order.
fn allows(value: &str, issuance: Issuance<'_>) -> bool {
    let mut parts = value.split(';').map(str::trim);
    let issuer = parts.next().unwrap_or_default();
    let is_named = || issuance.identities.iter().any(|identity| identity.eq_ignore_ascii_case(issuer));
    if issuer.is_empty() || !(issuance.identities.is_empty() || is_named()) {
        return false;
    }
    parts.filter(|parameter| !parameter.is_empty()).all(|parameter| match parameter.split_once('=') {
        Some((name, value)) => match name.trim() {
            "accounturi" => value.trim() == issuance.account_url,
            "validationmethods" => value.split(',').any(|method| method.trim() == issuance.challenge.as_str()),
            _ => true,
        },
        // A malformed parameter does not allow anything (RFC 8659 section 4.2).
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tag: &str, value: &str) -> CaaRecord {
        CaaRecord { critical: false, tag: tag.to_owned(), value: value.to_owned() }
    }

    fn is_allowed(records: &[CaaRecord], is_wildcard: bool) -> bool {
        let identities = ["ca.example".to_owned()];
        let account_url = "https://ca.example/account/1";
        let issuance = Issuance { identities: &identities, account_url, challenge: Challenge::Http01 };
        refusal("example.org", records, is_wildcard, issuance).is_none()
    }

    #[test]
    fn only_the_named_authority_may_issue() {
        assert!(is_allowed(&[record("issue", "ca.example")], false));
        assert!(is_allowed(&[record("issue", "other.example"), record("ISSUE", "CA.example")], false));
        assert!(is_allowed(&[record("iodef", "mailto:security@example.org")], false));
        for forbidden in ["other.example", ";", "", "ca.example.other", "ca.example; malformed"] {
            assert!(!is_allowed(&[record("issue", forbidden)], false), "{forbidden}");
        }
    }

    #[test]
    fn issuewild_takes_precedence_for_wildcards() {
        let records = [record("issue", "other.example"), record("issuewild", "ca.example")];
        assert!(is_allowed(&records, true));
        assert!(!is_allowed(&records, false));
        let records = [record("issue", "ca.example"), record("issuewild", ";")];
        assert!(!is_allowed(&records, true));
        assert!(is_allowed(&records, false));
        assert!(is_allowed(&[record("issue", "ca.example")], true));
        assert!(is_allowed(&[record("issuewild", ";")], false));
    }

    #[test]
    fn parameters_limit_account_and_method() {
        let issue = |parameters: &str| [record("issue", &format!("ca.example; {parameters}"))];
        assert!(is_allowed(&issue("accounturi=https://ca.example/account/1"), false));
        assert!(!is_allowed(&issue("accounturi=https://ca.example/account/2"), false));
        assert!(is_allowed(&issue("validationmethods=dns-01,http-01; other=1"), false));
        assert!(!is_allowed(&issue("validationmethods=dns-01"), false));
    }

    #[test]
    fn unknown_critical_tag_is_refused() {
        let unknown = CaaRecord { critical: true, ..record("future", "x") };
        assert!(!is_allowed(&[unknown.clone(), record("issue", "ca.example")], false));
        assert!(is_allowed(&[CaaRecord { critical: false, ..unknown }, record("issue", "ca.example")], false));
    }

    #[test]
    fn issuemail_does_not_limit_certificates_of_hosts() {
        let mail = CaaRecord { critical: true, ..record("issuemail", ";") };
        assert!(is_allowed(&[mail.clone(), record("issue", "ca.example")], false));
        assert!(!is_allowed(&[mail, record("issue", "other.example")], false));
    }

    #[test]
    fn unnamed_authority_is_refused_only_if_all_are() {
        let issuance = Issuance { identities: &[], account_url: "", challenge: Challenge::Dns01 };
        assert!(refusal("example.org", &[record("issue", "other.example")], false, issuance).is_none());
        assert!(refusal("example.org", &[record("issue", ";")], false, issuance).is_some());
    }
}

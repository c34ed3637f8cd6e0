//! Behaviors that the first label of a domain selects, for an operation: `check`, `register`, `read`, `nameservers`,
//! `renew`, `lock`, `authcode` or `ds`.
//!
//! | label | behavior |
//! |---|---|
//! | `fail-<operation>-before-…` | the first request has no effect and fails with 503 |
//! | `fail-<operation>-after-…` | the first request is executed, and its response is lost |
//! | `html-<operation>-…` | the first request has no effect and returns a page with 200 |
//! | `limit-<operation>-…` | the first request has no effect and returns 429 |
//! | `slow-<operation>-…` | every request takes two seconds |
//! | `status-<operation>-<status>-…` | every request is refused with this status |
//! | `taken-…` | the name belongs to the customer of another registrar |
//! | `missing-…` | a check leaves the name out, and fails with 422 if it has no other name |
//! | `aftermarket-…` | the name is sold by its holder |
//! | `premium-…` | the registry asks a high price |

use super::{RegistrarFault, RegistrarOperation};

/// A behavior of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Behavior {
    Fault(RegistrarFault),
    Slow,
}

/// Returns the behavior of a request. `is_first` states whether the registrar receives the first such request for this
/// name.
pub(super) fn select(name: &str, operation: RegistrarOperation, is_first: bool) -> Option<Behavior> {
    let label = name.split('.').next().unwrap_or_default();
    let words: Vec<&str> = label.split('-').collect();
    let selects = |word: &str| word == word_of(operation);
    Some(match words.as_slice() {
        ["fail", word, "before", ..] if is_first && selects(word) => {
            let body = r#"{"message":"Internal Server Error"}"#.to_owned();
            Behavior::Fault(RegistrarFault::Response(503, "application/json", body))
        }
        ["fail", word, "after", ..] if is_first && selects(word) => Behavior::Fault(RegistrarFault::LostResponse),
        ["html", word, ..] if is_first && selects(word) => Behavior::Fault(RegistrarFault::html(200)),
        ["limit", word, ..] if is_first && selects(word) => Behavior::Fault(RegistrarFault::TooManyRequests),
        ["slow", word, ..] if selects(word) => Behavior::Slow,
        ["status", word, status, ..] if selects(word) => {
            Behavior::Fault(RegistrarFault::refusal(status.parse().ok().filter(|status| (400..600).contains(status))?))
        }
        _ => return None,
    })
}

/// Returns whether the first label begins with this word.
pub(super) fn has_word(name: &str, word: &str) -> bool {
    name.strip_prefix(word).is_some_and(|rest| rest.starts_with('-'))
}

const fn word_of(operation: RegistrarOperation) -> &'static str {
    match operation {
        RegistrarOperation::Check => "check",
        RegistrarOperation::Register => "register",
        RegistrarOperation::Read => "read",
        RegistrarOperation::SetNameservers => "nameservers",
        RegistrarOperation::Renew => "renew",
        RegistrarOperation::SetLock => "lock",
        RegistrarOperation::AuthCode => "authcode",
        RegistrarOperation::Ds => "ds",
    }
}

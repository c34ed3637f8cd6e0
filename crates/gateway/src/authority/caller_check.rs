//! The statements that check a caller again when a change commits: the credential must still be valid, and the user
//! must still have the role. They lock the rows that they read. So a concurrent revocation either precedes the commit
//! or waits for it.

use std::sync::LazyLock;

use kernel::audit::{Credential, RequiredRole};
use store::CallerCheck;

/// The statements of one kind of credential.
struct CallerChecks {
    account: CallerCheck,
    org: CallerCheck,
}

macro_rules! caller_checks {
    ($credential:literal) => {
        CallerChecks {
            account: CallerCheck::new(
                concat!("SELECT FROM ", $credential, " FOR SHARE"),
                concat!("SELECT EXISTS (SELECT FROM ", $credential, ") AS is_valid, NULL::text AS role"),
            ),
            org: CallerCheck::new(
                concat!(
                    "SELECT FROM orgs.members m, ",
                    $credential,
                    " AND m.org_id = $3 AND m.user_id = c.user_id AND m.role = ANY ($4) FOR SHARE"
                ),
                concat!(
                    "SELECT EXISTS (SELECT FROM ",
                    $credential,
                    ") AS is_valid, (SELECT m.role FROM orgs.members m, ",
                    $credential,
                    " AND m.org_id = $3 AND m.user_id = c.user_id) AS role"
                ),
            ),
        }
    };
}

static OF_SESSION: LazyLock<CallerChecks> =
    LazyLock::new(|| caller_checks!("identity.sessions c WHERE c.id = $1 AND c.expires_at > $2"));

static OF_ACCESS_TOKEN: LazyLock<CallerChecks> = LazyLock::new(|| {
    caller_checks!(
        "identity.access_tokens c WHERE c.id = $1 AND c.revoked_at IS NULL AND (c.expires_at IS NULL OR c.expires_at > $2)"
    )
});

static OF_GRANT: LazyLock<CallerChecks> =
    LazyLock::new(|| caller_checks!("oauth.grants c WHERE c.id = $1 AND c.expires_at > $2"));

static OF_SSH_KEY: LazyLock<CallerChecks> =
    LazyLock::new(|| caller_checks!("identity.ssh_keys c WHERE c.id = $1 AND $2::timestamptz IS NOT NULL"));

/// Returns the statements for a credential, with or without a required role.
#[must_use]
pub fn find_caller_check(credential: Credential, required_role: Option<RequiredRole>) -> Option<&'static CallerCheck> {
    let checks: &'static CallerChecks = match credential {
        Credential::Session(_) => &OF_SESSION,
        Credential::Token(_) => &OF_ACCESS_TOKEN,
        Credential::Grant(_) => &OF_GRANT,
        Credential::SshKey(_) => &OF_SSH_KEY,
        // The transaction of a connected app locks the app's row itself. The other actors have no stored credential.
        Credential::Client(_) | Credential::None | Credential::Operator | Credential::Service => return None,
    };
    Some(if required_role.is_some() { &checks.org } else { &checks.account })
}

//! Tokens.

use std::time::Duration;

use databases::{DatabaseError, DatabaseToken, Target};
use futures_util::future::join;
use kernel::audit::Event;
use kernel::{DatabaseTokenId, Limits, Paging};
use serde_json::json;
use testkit::{Audit, four_at_a_time};

use crate::kit::{Kit, code, observation};

impl Kit {
    async fn tokens(&self, at: Target) -> Vec<DatabaseToken> {
        self.databases.tokens(at.project, &Paging::default()).await.unwrap().items
    }

    async fn revoke(&self, at: Target, user: DatabaseTokenId) -> Result<(), DatabaseError> {
        self.databases.token_revoke(&self.actor, at, &user.to_string()).await
    }

    /// Reports that the home node has applied the current part.
    async fn apply(&self, at: Target) {
        let part = self.part(at).await.unwrap();
        self.observe(at, observation(part.id, part.revision), None).await;
    }

    /// Reports the current part as applied, as soon as it no longer contains the token.
    async fn apply_without(&self, at: Target, user: DatabaseTokenId) {
        while self.part(at).await.unwrap().tokens.iter().any(|login| login.user == user) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.apply(at).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn password_is_returned_once_and_only_its_verifier_is_kept() {
    let kit = Kit::start().await;
    let (at, _) = kit.database("shop").await;
    let new = serde_json::from_value(json!({ "name": "reports", "expiresInSeconds": 3600 })).unwrap();
    let created = kit.databases.token_create(&kit.actor, at, kit.user(), new).await.unwrap();
    let expires_at = kit.now().plus_seconds(3600);
    let data = json!({ "token": created.user, "name": "reports", "expiresAt": expires_at });
    let event = Event::in_org("database.token.create", at.org, at.project, data);
    assert_eq!(kit.audited().await, [Audit::of(&kit.actor, event)]);
    let password = created.password.clone().unwrap();
    let listed = DatabaseToken { password: None, ..created.clone() };
    assert_eq!(kit.tokens(at).await, std::slice::from_ref(&listed));
    assert!(serde_json::to_value(&listed).unwrap().get("password").is_none());
    let login = kit.part(at).await.unwrap().tokens.remove(0);
    assert_eq!((login.user, login.expires_at), (created.user, Some(expires_at)));
    assert!(login.verifier.0.starts_with("SCRAM-SHA-256$4096:"));
    for table in ["databases.tokens", "store.audit"] {
        let rows = serde_json::Value::from(kit.db_rows(&format!("SELECT * FROM {table}")).await).to_string();
        assert!(!rows.contains(password.reveal()), "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_tokens_are_neither_listed_nor_published_nor_counted() {
    let mut limits = Limits::default();
    limits.free.database_tokens = 1;
    let kit = Kit::with(limits).await;
    let (at, _) = kit.database("shop").await;
    let token = kit.token(at, Some(60)).await.unwrap();
    kit.advance(59);
    assert_eq!((kit.tokens(at).await.len(), kit.part(at).await.unwrap().tokens.len()), (1, 1));
    kit.advance(1);
    assert_eq!((kit.tokens(at).await.len(), kit.part(at).await.unwrap().tokens.len()), (0, 0));
    assert_eq!(code(kit.revoke(at, token.user).await), "not_found");
    kit.token(at, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_tokens_respect_the_limit() {
    let mut limits = Limits::default();
    limits.free.database_tokens = 5;
    let kit = Kit::with(limits).await;
    let (at, _) = kit.database("shop").await;
    let created = four_at_a_time((0..20).map(|_| kit.token(at, None))).await;
    let (created, refused): (Vec<_>, Vec<_>) = created.into_iter().partition(Result::is_ok);
    assert_eq!((created.len(), refused.len()), (5, 15));
    for refused in refused {
        let error = refused.unwrap_err();
        let details = kernel::ApiError::details(&error).unwrap();
        assert_eq!(details, json!({ "limit": 5, "count": 5, "plan": "free" }));
        assert_eq!(code::<()>(Err(error)), "token_limit");
    }
    assert_eq!(kit.audited().await.len(), 5);
    assert_eq!(kit.part(at).await.unwrap().tokens.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn revocation_ends_when_the_node_has_applied_it() {
    let kit = Kit::start().await;
    let (at, _) = kit.database("shop").await;
    let (token, other) = (kit.token(at, None).await.unwrap(), kit.token(at, None).await.unwrap());
    kit.audited().await;
    // A report of a revision before the revocation does not end the wait.
    kit.apply(at).await;
    let (revoked, ()) = join(kit.revoke(at, token.user), kit.apply_without(at, token.user)).await;
    revoked.unwrap();
    let event = Event::in_org("database.token.revoke", at.org, at.project, json!({ "token": token.user }));
    assert_eq!(kit.audited().await, [Audit::of(&kit.actor, event)]);
    assert_eq!(kit.tokens(at).await.iter().map(|token| token.user).collect::<Vec<_>>(), [other.user]);
    for user in [token.user.to_string(), "tok_x".to_owned(), "x".to_owned()] {
        assert_eq!(code(kit.databases.token_revoke(&kit.actor, at, &user).await), "not_found", "{user}");
    }
    let (foreign, _) = kit.database("other").await;
    assert_eq!(code(kit.revoke(foreign, other.user).await), "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn unconfirmed_revocation_holds_and_a_repeated_one_waits_again() {
    let kit = Kit::start().await;
    let (at, _) = kit.database("shop").await;
    let token = kit.token(at, None).await.unwrap();
    kit.audited().await;
    let refused = kit.revoke(at, token.user).await;
    assert!(matches!(refused, Err(DatabaseError::RevocationUnconfirmed)), "{refused:?}");
    assert_eq!(code(refused), "unavailable");
    assert!(kit.tokens(at).await.is_empty());
    assert!(kit.part(at).await.unwrap().tokens.is_empty());
    // The last statement of a poll shows that the request waits.
    let begun = kit.db_rows("SELECT clock_timestamp()::text AS at").await[0]["at"].as_str().unwrap().to_owned();
    let polls = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'test' AND datname = current_database() \
         AND query LIKE '%project_plans%' AND query_start > '{begun}'"
    );
    let waits = async {
        while kit.db_number(&polls).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (revoked, ()) = join(kit.revoke(at, token.user), async {
        tokio::time::timeout(Duration::from_secs(60), waits).await.unwrap();
        kit.apply(at).await;
    })
    .await;
    revoked.unwrap();
    // The concurrent requests revoke the token once and write one audit row.
    assert_eq!(kit.audited().await.len(), 1);
    // The deletion of the project ends the wait.
    let token = kit.token(at, None).await.unwrap();
    let delete = async {
        while !kit.part(at).await.unwrap().tokens.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        kit.db_delete(at).await;
    };
    let (refused, ()) = join(kit.revoke(at, token.user), delete).await;
    assert_eq!(code(refused), "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_need_a_database() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    assert_eq!(code(kit.token(at, None).await), "not_found");
    assert_eq!(code(kit.databases.tokens(at.project, &Paging::default()).await), "not_found");
    let unknown: DatabaseTokenId = kit.store.clock_rng().id();
    assert_eq!(code(kit.revoke(at, unknown).await), "not_found");
}

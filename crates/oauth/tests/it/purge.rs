//! Rows that no grant needs.

use oauth::OAuthError;

use crate::kit::{ADDRESS, Kit};

/// Adds many used refresh tokens to each grant.
const ADD_TOKENS: &str = "
    INSERT INTO oauth.refresh_tokens (token_hash, grant_id, created_at, rotated_at, successor_hash)
    SELECT sha256(n::text::bytea), g.id, g.created_at, g.created_at, sha256((n + 1)::text::bytea)
    FROM oauth.grants g, generate_series(1, 2500) n";

impl Kit {
    /// Makes every deletion of rows of this table fail.
    async fn fail_deletions(&self, table: &str) {
        self.db_execute(&format!(
            "CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'a failure of this test'; END $$; \
             CREATE TRIGGER fail BEFORE DELETE ON oauth.{table} EXECUTE FUNCTION public.fail()"
        ))
        .await;
    }
}

#[tokio::test]
async fn purge_deletes_only_what_no_grant_needs() {
    let kit = Kit::with_grace(30).await;
    let first = kit.sign_in().await;
    let unused = kit.code().await;
    let device = kit.oauth.device_authorize(&kit.client, None, ADDRESS).await.unwrap();
    let second = kit.refresh(&first).await.unwrap();
    let count = async |table: &str| kit.db_number(&format!("SELECT count(*) FROM oauth.{table}")).await;
    let stored = "SELECT count(*) FROM oauth.grants WHERE successor IS NOT NULL";
    kit.oauth.purge().await.unwrap();
    assert_eq!((count("codes").await, count("device_codes").await, kit.db_number(stored).await), (2, 1, 1));

    kit.advance(61);
    kit.oauth.purge().await.unwrap();
    // The used code is kept as long as its grant.
    assert_eq!((count("codes").await, kit.db_number(stored).await), (1, 0));
    kit.exchange(unused).await.unwrap_err();

    // A device code is kept for some time after its expiry, so that its client learns that it expired.
    kit.advance(600);
    kit.oauth.purge().await.unwrap();
    let expired = kit.oauth.exchange_device_code(&kit.client, device.device_code.reveal(), None, "req-1").await;
    assert_eq!(expired.unwrap_err().to_string(), "the device code has expired; start again");
    kit.advance(600);
    kit.oauth.purge().await.unwrap();
    assert_eq!(count("device_codes").await, 0);

    kit.clock.advance_days(59);
    kit.oauth.purge().await.unwrap();
    assert_eq!((count("grants").await, count("refresh_tokens").await), (1, 2));
    kit.refresh(&second).await.unwrap();
    kit.clock.advance_days(60);
    kit.oauth.purge().await.unwrap();
    assert_eq!((count("grants").await, count("refresh_tokens").await, count("codes").await), (0, 0, 0));
}

#[tokio::test]
async fn end_of_a_grant_leaves_its_refresh_tokens_to_the_purge() {
    let kit = Kit::start().await;
    let first = kit.sign_in().await;
    let second = kit.refresh(&first).await.unwrap();
    kit.db_execute(ADD_TOKENS).await;
    let kept = kit.sign_in().await;
    let count = async |table: &str| kit.db_number(&format!("SELECT count(*) FROM oauth.{table}")).await;
    kit.fail_deletions("refresh_tokens").await;
    kit.oauth.revoke(&kit.client, second.refresh_token.reveal(), "req-1").await.unwrap();
    assert_eq!((kit.grants().await, count("ended_grants").await, count("refresh_tokens").await), (1, 1, 2503));
    // Neither the current token nor a used one has an effect.
    for tokens in [&first, &second] {
        let refused = kit.refresh(tokens).await.unwrap_err();
        assert!(matches!(refused, OAuthError::InvalidGrant(_)), "{refused}");
        kit.oauth.revoke(&kit.client, tokens.refresh_token.reveal(), "req-1").await.unwrap();
    }
    kit.oauth.purge().await.unwrap_err();
    kit.db_execute("DROP TRIGGER fail ON oauth.refresh_tokens").await;
    kit.oauth.purge().await.unwrap();
    assert_eq!((kit.grants().await, count("ended_grants").await, count("refresh_tokens").await), (1, 0, 1));
    kit.refresh(&kept).await.unwrap();
}

#[tokio::test]
async fn error_of_one_kind_of_row_does_not_stop_the_purge_of_others() {
    let kit = Kit::start().await;
    kit.sign_in().await;
    kit.code().await;
    kit.oauth.device_authorize(&kit.client, None, ADDRESS).await.unwrap();
    kit.fail_deletions("grants").await;
    kit.advance(1201);
    kit.oauth.purge().await.unwrap_err();
    let count = async |table: &str| kit.db_number(&format!("SELECT count(*) FROM oauth.{table}")).await;
    // The used code belongs to the grant.
    assert_eq!((count("codes").await, count("device_codes").await, count("grants").await), (1, 0, 1));
}

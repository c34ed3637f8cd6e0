//! Stored session data, the end of a session, and the limit of sessions.

use identity::{IdentityRepository as _, NewSession};
use kernel::audit::Credential;
use kernel::{Digest, SessionId, Token, TokenKind};
use serde_json::{Value, json};

use crate::kit::{Kit, anonymous_actor, dev_login};

const SESSION: &str = "SELECT encode(token_hash, 'hex') AS hash, user_agent, created_at = '2026-11-21 10:00Z' AS now, \
     (expires_at - created_at)::text AS lives FROM identity.sessions";

#[tokio::test(flavor = "multi_thread")]
async fn session_expires_after_thirty_days_and_only_its_hash_is_stored() {
    let kit = Kit::start().await;
    let now = kit.now();
    let session = kit.login("ada").await.unwrap();
    assert_eq!(session.expires_at, now.plus_seconds(2_592_000));
    let token = session.token.reveal();
    assert_eq!(Token::parse(TokenKind::Session, token), Some(session.token.clone()));
    // The hash includes the prefix of the token.
    let hash = Digest::of(token.as_bytes()).hex();
    let expected = json!({ "hash": hash, "user_agent": null, "now": true, "lives": "30 days" });
    assert_eq!(kit.db_rows(SESSION).await, [expected]);
    for table in ["identity.users", "identity.sessions", "store.audit"] {
        let rows = Value::from(kit.db_rows(&format!("SELECT t::text FROM {table} t")).await).to_string();
        assert!(rows.contains('(') && !rows.contains(token) && !rows.contains("svc_ses_"), "{rows}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn user_agent_is_truncated() {
    let kit = Kit::start().await;
    let (short, long) = ("Firefox".to_owned(), "ü".repeat(300));
    for (user_agent, stored) in
        [(None, None), (Some(&short), Some(short.clone())), (Some(&long), Some("ü".repeat(255)))]
    {
        let login = dev_login("ada", None, None);
        kit.identity.dev_login(&anonymous_actor(), login, user_agent.map(String::as_str)).await.unwrap();
        let target = kit.audited().await[0].target.parse::<SessionId>().unwrap();
        let one = format!("SELECT user_agent FROM identity.sessions WHERE id = '{}'", target.as_uuid());
        assert_eq!(kit.db_rows(&one).await, [json!({ "user_agent": stored })]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_end_ends_only_that_session() {
    let kit = Kit::start().await;
    let (mut sessions, mut user) = (Vec::new(), None);
    for _ in 0..2 {
        user = Some(kit.login("ada").await.unwrap().user_id);
        sessions.push(kit.audited().await[0].target.parse::<SessionId>().unwrap());
    }
    let user = user.unwrap();
    kit.identity.session_end(&anonymous_actor(), user, sessions[0]).await.unwrap();
    let events = kit.audited().await;
    let [row] = events.as_slice() else { panic!("one row is expected: {events:?}") };
    assert_eq!((row.event.as_str(), &row.target), ("session.end", &sessions[0].to_string()));
    assert_eq!(row.data, json!({}));
    let left = [json!({ "id": sessions[1].as_uuid().to_string() })];
    assert_eq!(kit.db_rows("SELECT id FROM identity.sessions").await, left);

    for (user, gone) in
        [(user, sessions[0]), (user, kit.store.clock_rng().id()), (kit.store.clock_rng().id(), sessions[1])]
    {
        let refused = kit.identity.session_end(&anonymous_actor(), user, gone).await;
        assert!(matches!(refused, Err(identity::IdentityError::SessionNotFound)), "{refused:?}");
    }
    assert_eq!(kit.audited().await, []);
    assert_eq!(kit.db_rows("SELECT id FROM identity.sessions").await, left);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_session_above_the_limit_ends_the_one_that_was_used_least_recently() {
    let kit = Kit::start().await;
    kit.login("bob").await.unwrap();
    kit.audited().await;
    let mut sessions = Vec::new();
    for _ in 0..100 {
        kit.login("ada").await.unwrap();
        let events = kit.audited().await;
        assert_eq!(events[0].data["ended"], json!([]));
        sessions.push(events[0].target.parse::<SessionId>().unwrap());
    }
    kit.advance(3600);
    kit.identity.touch(Credential::Session(sessions[0])).await.unwrap();
    kit.advance(1);
    kit.login("ada").await.unwrap();
    let events = kit.audited().await;
    let [row] = events.as_slice() else { panic!("one row is expected: {events:?}") };
    assert_eq!((row.event.as_str(), &row.data["ended"]), ("session.start", &json!([sessions[1]])));
    // The session of another user does not count.
    assert_eq!(kit.db_counts().await[1], 101);
    // Expired sessions do not count either.
    kit.clock.advance_days(30);
    kit.login("ada").await.unwrap();
    assert_eq!(kit.audited().await[0].data["ended"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_sessions_are_purged() {
    let kit = Kit::start().await;
    let expired = kit.login("ada").await.unwrap().user_id;
    kit.clock.advance_days(1);
    let live = kit.login("bob").await.unwrap().user_id;
    kit.clock.advance_days(29);
    kit.identity.sessions_purge().await.unwrap();
    let users = kit.db_rows("SELECT user_id FROM identity.sessions").await;
    assert_eq!(users, [json!({ "user_id": live.as_uuid().to_string() })]);
    assert_ne!(live, expired);
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_session_token_is_rejected() {
    let kit = Kit::start().await;
    let user_id = kit.login("ada").await.unwrap().user_id;
    let (clock_rng, now) = (kit.store.clock_rng(), kit.now());
    let session = NewSession {
        id: clock_rng.id(),
        user_id,
        token_hash: Token::mint(TokenKind::Session, clock_rng).hash(),
        user_agent: None,
        created_at: now,
        expires_at: now.plus_seconds(60),
    };
    let mut connection = kit.connection().await;
    connection.session_insert(&session).await.unwrap();
    let duplicate = NewSession { id: clock_rng.id(), ..session };
    let refused = connection.session_insert(&duplicate).await.unwrap_err();
    assert!(refused.violates("sessions_token_hash_key"), "{refused:?}");
}

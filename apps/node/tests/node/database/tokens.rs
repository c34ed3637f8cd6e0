//! Tokens: logins that expire and can be revoked.

use tokio_postgres::error::SqlState;

use super::kit::{Kit, PASSWORD, eventually, number};

#[tokio::test(flavor = "multi_thread")]
async fn revoked_token_is_refused_when_the_revision_is_reported() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let (kept, token) = (kit.add_token("prj_a", None), kit.add_token("prj_a", None));
    kit.applied("prj_a").await;
    let database = kit.name("prj_a");
    let session = kit.log_in(&token, PASSWORD, &database).await.unwrap();
    // The token tries to outlive its revocation, with another password, a grant of itself, an object, and privileges.
    let tricks = format!(
        "SET ROLE NONE; ALTER ROLE {token} PASSWORD 'mine'; SELECT lo_create(4711); SET ROLE {database};
         CREATE TABLE t (); GRANT ALL ON t TO {token}; CREATE SCHEMA s; GRANT ALL ON SCHEMA s TO {token} WITH GRANT OPTION"
    );
    session.batch_execute(&tricks).await.unwrap();
    let granted = session.batch_execute(&format!("SET ROLE NONE; GRANT {token} TO {kept}; SET ROLE {database}")).await;
    kit.change("prj_a", |desired| desired.tokens.retain(|login| login.user != token));
    kit.applied("prj_a").await;
    for password in [PASSWORD, "mine"] {
        let error = kit.log_in(&token, password, &database).await.err().unwrap();
        let codes = [SqlState::INVALID_AUTHORIZATION_SPECIFICATION, SqlState::INVALID_PASSWORD];
        assert!(error.code().is_some_and(|code| codes.contains(code)), "{error:?}");
    }
    // The open session continues, but it cannot enable the login again.
    session.batch_execute("INSERT INTO t DEFAULT VALUES").await.unwrap();
    assert!(session.batch_execute(&format!("SET ROLE NONE; ALTER ROLE {token} LOGIN")).await.is_err());
    drop(session);
    let admin = kit.superuser("svc_node").await;
    let exists = format!("SELECT count(*) FROM pg_roles WHERE rolname = '{token}'");
    eventually("the end of the role", async || number(&admin, &exists).await == 0).await;
    // The token's objects belong to the owner now. The other token is unaffected.
    let session = kit.log_in(&kept, PASSWORD, &database).await.unwrap();
    session.batch_execute("SELECT lo_unlink(4711); DROP TABLE t; DROP SCHEMA s").await.unwrap();
    assert_eq!(
        number(
            &admin,
            "SELECT count(*) FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid JOIN pg_roles g ON g.oid = m.member
             WHERE r.rolname LIKE 'tok%' AND g.rolname NOT LIKE 'dump%'"
        )
        .await,
        0
    );
    // The grant succeeds up to Postgres 15.
    let _ = granted;
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_object_of_a_revoked_token_passes_to_the_owner_after_the_lock() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let token = kit.add_token("prj_a", None);
    kit.applied("prj_a").await;
    let database = kit.name("prj_a");
    let session = kit.log_in(&token, PASSWORD, &database).await.unwrap();
    let create = format!(
        "GRANT CREATE ON SCHEMA public TO {token}; GRANT CREATE ON DATABASE {database} TO {token};
         SET ROLE NONE; CREATE TABLE own (); GRANT SELECT ON own TO {database};
         CREATE FUNCTION public.f() RETURNS int LANGUAGE sql AS 'SELECT 1';
         CREATE SCHEMA later; ALTER FUNCTION public.f() SET SCHEMA later"
    );
    session.batch_execute(&create).await.unwrap();
    drop(session);
    // A backup holds the same lock.
    let reader = kit.session("prj_a").await;
    reader.batch_execute("BEGIN; SELECT FROM own").await.unwrap();
    kit.change("prj_a", |desired| desired.tokens.clear());
    kit.applied("prj_a").await;
    let failed = "failed to remove the objects of revoked roles";
    eventually("the failure", async || kit.node.log().contains(failed)).await;
    let admin = kit.superuser("svc_node").await;
    let exists = format!("SELECT count(*) FROM pg_roles WHERE rolname = '{token}'");
    assert_eq!(number(&admin, &exists).await, 1);
    reader.batch_execute("COMMIT").await.unwrap();
    eventually("the end of the role", async || number(&admin, &exists).await == 0).await;
    reader.batch_execute("DROP TABLE own; DROP FUNCTION later.f(); DROP SCHEMA later").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_token_is_refused() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    let past = kit.add_token("prj_a", Some("2026-01-01T00:00:00.000Z".to_owned()));
    let future = kit.add_token("prj_a", Some("2099-01-01T00:00:00.000Z".to_owned()));
    kit.applied("prj_a").await;
    let database = kit.name("prj_a");
    let error = kit.log_in(&past, PASSWORD, &database).await.err().unwrap();
    assert_eq!(error.code(), Some(&SqlState::INVALID_PASSWORD), "{error:?}");
    let session = kit.log_in(&future, PASSWORD, &database).await.unwrap();
    // Only a superuser can change the expiry.
    for statement in ["VALID UNTIL 'infinity'", "CONNECTION LIMIT -1", "BYPASSRLS"] {
        assert!(session.batch_execute(&format!("SET ROLE NONE; ALTER ROLE {future} {statement}")).await.is_err());
    }
    // The connection limit applies to a token.
    let mut sessions = Vec::new();
    let refused = loop {
        match kit.log_in(&future, PASSWORD, &database).await {
            Ok(session) => sessions.push(session),
            Err(error) => break error,
        }
    };
    assert_eq!((refused.code(), sessions.len()), (Some(&SqlState::TOO_MANY_CONNECTIONS), 4));
}

//! The schema `svc_auth` in the database of a project.

use sandbox::IdentityProvider::{CodeHost, WebAccount};
use serde_json::Value;

use super::{PROJECT, Rig, user_id};
use crate::database::kit::{PASSWORD, number};

#[tokio::test(flavor = "multi_thread")]
async fn schema_is_hidden_from_the_logins_of_the_project() {
    let Some(mut rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    browser.sign_in(WebAccount, "ada", "/").await;
    let token = rig.add_token(PROJECT, None);
    rig.applied(PROJECT).await;
    let database = rig.name(PROJECT);
    let auth = database.replace("db_", "auth_");
    for login in [rig.app(PROJECT), token] {
        for statement in [
            "SELECT * FROM svc_auth.users",
            "SELECT * FROM svc_auth.sessions",
            "INSERT INTO svc_auth.sessions SELECT * FROM svc_auth.sessions",
            "DELETE FROM svc_auth.users",
            "LOCK TABLE svc_auth.users IN ACCESS SHARE MODE",
            "TRUNCATE svc_auth.sessions",
            "DROP SCHEMA svc_auth CASCADE",
            "ALTER SCHEMA svc_auth RENAME TO mine",
            "CREATE TABLE svc_auth.mine (a int)",
            "CREATE TABLE public.mine (id uuid REFERENCES svc_auth.users)",
            "CREATE VIEW public.seen AS SELECT * FROM svc_auth.users",
            "CREATE TRIGGER t AFTER INSERT ON svc_auth.users EXECUTE FUNCTION suppress_redundant_updates_trigger()",
            "CREATE RULE r AS ON INSERT TO svc_auth.users DO ALSO NOTHING",
            "GRANT USAGE ON SCHEMA svc_auth TO PUBLIC",
            &format!("SET ROLE {auth}"),
            &format!("GRANT {auth} TO CURRENT_USER"),
            &format!("ALTER ROLE {auth} PASSWORD 'mine'"),
            &format!("REASSIGN OWNED BY {auth} TO CURRENT_USER"),
            &format!("DROP OWNED BY {auth}"),
        ] {
            let session = rig.log_in(&login, PASSWORD, &database).await.unwrap();
            assert!(session.batch_execute(statement).await.is_err(), "{login}: {statement}");
            // The role of the login itself has no more privileges.
            let session = rig.log_in(&login, PASSWORD, &database).await.unwrap();
            assert!(
                session.batch_execute(&format!("SET ROLE NONE; {statement}")).await.is_err(),
                "{login}: {statement}"
            );
        }
    }
    // The dump of a tenant must omit the schema.
    rig.session(PROJECT).await.batch_execute("CREATE TABLE kept (a int)").await.unwrap();
    let dump = rig.dump(PROJECT, &["--exclude-schema=svc_auth"]);
    assert!(dump.contains("CREATE TABLE public.kept") && !dump.contains("svc_auth"), "{dump}");
    assert!(browser.user().await.is_object());
}

#[tokio::test(flavor = "multi_thread")]
async fn schema_of_the_project_with_the_same_name_is_renamed() {
    let Some(rig) = Rig::start_disabled().await else { return };
    // A project prepares a schema in which a trigger would run with the privileges of the node's login.
    let trap = "
        CREATE SCHEMA svc_auth;
        CREATE TABLE svc_auth.users (id uuid PRIMARY KEY, provider text);
        CREATE TABLE svc_auth.sessions (token bytea PRIMARY KEY);
        INSERT INTO svc_auth.sessions VALUES ('mine');
        CREATE TABLE public.ran (who text);
        CREATE FUNCTION public.trap() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO public.ran VALUES (session_user); RETURN NEW; END $$;
        CREATE TRIGGER trap BEFORE INSERT ON svc_auth.users FOR EACH ROW EXECUTE FUNCTION public.trap();
        COMMENT ON SCHEMA svc_auth IS 'version 1'";
    let session = rig.session(PROJECT).await;
    session.batch_execute(trap).await.unwrap();
    for setting in ["default_transaction_read_only = on", "default_transaction_isolation = serializable"] {
        session.batch_execute(&format!("ALTER DATABASE {} SET {setting}", rig.name(PROJECT))).await.unwrap();
    }
    // A dump keeps the project's own table of this name.
    rig.enable_auth(&sandbox::IdentityProvider::ALL).await;
    let mut browser = rig.browser().await;
    assert_eq!(browser.sign_in(WebAccount, "ada", "/").await.status, 303);
    assert!(browser.user().await.is_object());
    let session = rig.session(PROJECT).await;
    assert_eq!(number(&session, "SELECT count(*) FROM public.ran").await, 0);
    let renamed = "SELECT nspname::text FROM pg_namespace WHERE nspname ~ '^svc_auth_[0-9a-f]{8}$'";
    let renamed: String = session.query_one(renamed, &[]).await.unwrap().get(0);
    assert_eq!(number(&session, &format!("SELECT count(*) FROM {renamed}.sessions")).await, 1);
    assert!(session.batch_execute("SELECT * FROM svc_auth.sessions").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_project_do_not_affect_sign_ins() {
    let Some(rig) = Rig::start_disabled().await else { return };
    let session = rig.session(PROJECT).await;
    let database = rig.name(PROJECT);
    for setting in [
        "search_path = public",
        "default_transaction_read_only = on",
        "statement_timeout = '1ms'",
        "lock_timeout = '1ms'",
        "default_transaction_isolation = serializable",
        "bytea_output = escape",
        "DateStyle = 'SQL, DMY'",
        "TimeZone = 'Asia/Kathmandu'",
        "jit_above_cost = 0",
    ] {
        session.batch_execute(&format!("ALTER DATABASE {database} SET {setting}")).await.unwrap();
    }
    session.batch_execute("SET transaction_read_only = off; CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz'").await.unwrap();
    rig.enable_auth(&sandbox::IdentityProvider::ALL).await;
    let mut browser = rig.browser().await;
    for person in ["ada", "grace"] {
        let response = browser.sign_in(CodeHost, person, "/").await;
        assert_eq!(response.status, 303, "{}", response.body);
    }
    assert_eq!(browser.user().await["name"], "Grace Hopper");
}

#[tokio::test(flavor = "multi_thread")]
async fn visitors_sign_out_while_the_database_exceeds_its_limit() {
    let Some(mut rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    browser.sign_in(WebAccount, "ada", "/").await;
    let id = user_id(&mut browser).await;
    let admin = rig.superuser("svc_node").await;
    let size = number(&admin, &format!("SELECT pg_database_size('{}')", rig.name(PROJECT))).await;
    rig.change(PROJECT, |database| database.size_bytes = u64::try_from(size * 3 / 4).unwrap());
    rig.reported(PROJECT, "the limit", |report| report.read_only).await;
    assert_eq!(user_id(&mut browser).await, id);
    assert_eq!((browser.log_out().await.status, browser.user().await), (303, Value::Null));
}

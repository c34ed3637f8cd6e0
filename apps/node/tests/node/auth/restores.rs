//! Users and sessions across backups and restores.

use std::process::Command;

use sandbox::IdentityProvider::{CodeHost, WebAccount};
use serde_json::Value;

use super::{HOST, PROJECT, Rig, user_id};
use crate::database::kit::{eventually, number};

/// The owners in the schema `svc_auth`.
const OWNERS: &str = "
    SELECT string_agg(DISTINCT owner, ',') FROM (
        SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'svc_auth' UNION ALL
        SELECT relowner::regrole::text FROM pg_class WHERE relnamespace = 'svc_auth'::regnamespace) AS owners (owner)";

/// During the restore, a check of the project's table tries to change the users.
const ATTACK: &str = "
    CREATE TABLE public.a_log (outcome text);
    CREATE FUNCTION public.attack(value text) RETURNS boolean LANGUAGE plpgsql AS $f$
    DECLARE statement text;
    BEGIN
        IF session_user::text !~ '^load_' THEN RETURN true; END IF;
        FOREACH statement IN ARRAY ARRAY['SELECT * FROM svc_auth.users', 'DROP SCHEMA svc_auth CASCADE',
            'CREATE TABLE svc_auth.mine (a int)', 'SET LOCAL ROLE ' || replace(current_user, 'db_', 'auth_'),
            'SET LOCAL ROLE NONE; DELETE FROM svc_auth.users'] LOOP
            BEGIN
                EXECUTE statement;
                INSERT INTO public.a_log VALUES ('succeeded: ' || statement);
            EXCEPTION WHEN insufficient_privilege OR invalid_parameter_value THEN
                INSERT INTO public.a_log VALUES ('refused');
            END;
        END LOOP;
        RETURN true;
    END $f$;
    CREATE TABLE public.b_checked (value text CHECK (public.attack(value)));
    INSERT INTO public.b_checked VALUES ('x')";

#[tokio::test(flavor = "multi_thread")]
async fn restore_keeps_users_and_ends_sessions() {
    let Some(mut rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    browser.sign_in(WebAccount, "ada", "/").await;
    let id = user_id(&mut browser).await;
    let session = rig.session(PROJECT).await;
    session.batch_execute(ATTACK).await.unwrap();
    drop(session);
    let generation = rig.generation(PROJECT).await;
    // This user does not exist in the generation.
    let mut later = rig.browser().await;
    later.sign_in(CodeHost, "grace", "/").await;
    rig.restore(PROJECT, &generation).await;
    let visitor = rig.visitor().await;
    eventually("the sign-in", async || visitor.get(HOST, "/__svc/auth/login").await.status == 200).await;
    assert_eq!((browser.user().await, later.user().await), (Value::Null, Value::Null));
    browser.sign_in(WebAccount, "ada", "/").await;
    assert_eq!(user_id(&mut browser).await, id);
    let admin = rig.superuser(&rig.name(PROJECT)).await;
    assert_eq!(number(&admin, "SELECT count(*) FROM svc_auth.users").await, 1);
    let owners: String = admin.query_one(OWNERS, &[]).await.unwrap().get(0);
    assert_eq!(owners, rig.name(PROJECT).replace("db_", "auth_"));
    let session = rig.session(PROJECT).await;
    assert!(session.batch_execute("SELECT * FROM svc_auth.users").await.is_err());
    let refused = "SELECT count(*) FROM a_log WHERE outcome = 'refused'";
    let outcomes = "SELECT string_agg(outcome, E'\\n') FROM a_log";
    let outcomes: Option<String> = session.query_one(outcomes, &[]).await.unwrap().get(0);
    assert_eq!(number(&session, refused).await, 5, "{outcomes:?}");
    let members = "SELECT count(*) FROM pg_auth_members WHERE roleid::regrole::text ~ '^auth_' \
                   AND member::regrole::text !~ '^dump_'";
    assert_eq!(number(&admin, members).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn generation_contains_users_but_no_sessions() {
    let Some(mut rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    browser.sign_in(WebAccount, "ada", "/").await;
    let generation = rig.generation(PROJECT).await;
    let archive = rig.dir.path().join("backups").join(&generation.key);
    let restored = |arguments: &[&str]| {
        let mut program = Command::new(rig.postgres.programs().join("pg_restore"));
        let output = program.args(["--file=-"]).args(arguments).arg(&archive).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let sql = restored(&["--no-owner"]);
    assert!(sql.contains("COPY svc_auth.users") && sql.contains("ada@mail.example"), "{sql}");
    assert!(sql.contains("CREATE TABLE svc_auth.sessions") && !sql.contains("COPY svc_auth.sessions"), "{sql}");
    // Standard programs restore it without the roles of the node.
    let admin = rig.superuser("postgres").await;
    admin.batch_execute("CREATE DATABASE copy TEMPLATE template0").await.unwrap();
    let mut program = Command::new(rig.postgres.programs().join("pg_restore"));
    let url = format!("{}/copy", rig.postgres.url().rsplit_once('/').unwrap().0);
    program.args(["--no-owner", "--no-acl", "--exit-on-error", "--dbname", &url]).arg(&archive);
    let output = program.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(number(&rig.superuser("copy").await, "SELECT count(*) FROM svc_auth.users").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn own_table_of_a_project_with_a_reserved_name_is_backed_up() {
    let Some(mut rig) = Rig::start_disabled().await else { return };
    let own = "CREATE SCHEMA svc_auth; CREATE TABLE svc_auth.sessions AS SELECT 'kept' AS value";
    rig.session(PROJECT).await.batch_execute(own).await.unwrap();
    let generation = rig.generation(PROJECT).await;
    rig.session(PROJECT).await.batch_execute("DROP SCHEMA svc_auth CASCADE").await.unwrap();
    rig.restore(PROJECT, &generation).await;
    let kept = "SELECT count(*) FROM svc_auth.sessions WHERE value = 'kept'";
    assert_eq!(number(&rig.session(PROJECT).await, kept).await, 1);
}

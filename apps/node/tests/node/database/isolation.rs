//! Attempts of one project to reach another one, the cluster, or more power.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::kit::{Kit, PASSWORD, number};

/// Statements that must fail. `$a` and `$b` are the suffixes of the databases, and `$pid` is a process of the other
/// project.
const ATTEMPTS: &[&str] = &[
    // Roles.
    "SET ROLE db_$b",
    "SET ROLE app_$b",
    "SET ROLE dump_$a",
    "SET ROLE node_$a",
    "SET ROLE postgres",
    "SET ROLE NONE; SET ROLE db_$b",
    "SET SESSION AUTHORIZATION app_$b",
    "SET SESSION AUTHORIZATION postgres",
    "SELECT set_config('role', 'postgres', false)",
    "SELECT set_config('session_authorization', 'db_$b', false)",
    "GRANT db_$b TO app_$a",
    "GRANT pg_read_all_data TO db_$a",
    "GRANT pg_read_server_files TO db_$a",
    "SET ROLE NONE; GRANT db_$a TO app_$b",
    "ALTER ROLE app_$b PASSWORD 'x'",
    "ALTER ROLE db_$b SET search_path = x",
    "SET ROLE NONE; ALTER ROLE app_$a SUPERUSER",
    "SET ROLE NONE; ALTER ROLE app_$a CREATEDB",
    "SET ROLE NONE; ALTER ROLE app_$a BYPASSRLS",
    "SET ROLE NONE; ALTER ROLE app_$a REPLICATION",
    "SET ROLE NONE; ALTER ROLE app_$a CONNECTION LIMIT -1",
    "SET ROLE NONE; ALTER ROLE app_$a SET temp_file_limit = -1",
    "SET ROLE NONE; ALTER ROLE app_$a SET lc_messages = 'POSIX'",
    "ALTER ROLE db_$a LOGIN",
    "ALTER ROLE ALL SET search_path = x",
    "CREATE ROLE x",
    "DROP ROLE app_$b",
    "REASSIGN OWNED BY db_$b TO db_$a",
    "DROP OWNED BY db_$b",
    "COMMENT ON ROLE app_$b IS 'x'",
    // Databases.
    "CREATE DATABASE x",
    "CREATE DATABASE x TEMPLATE db_$b",
    "CREATE DATABASE x TEMPLATE svc_template",
    "DROP DATABASE db_$b",
    "DROP DATABASE svc_node",
    "ALTER DATABASE db_$b SET search_path = x",
    "ALTER DATABASE db_$b CONNECTION LIMIT 0",
    "ALTER DATABASE db_$b RENAME TO x",
    "ALTER DATABASE db_$a RENAME TO x",
    "ALTER DATABASE db_$a OWNER TO db_$b",
    "ALTER DATABASE template1 SET search_path = x",
    "ALTER DATABASE db_$a SET log_statement = 'none'",
    "ALTER DATABASE db_$a SET session_preload_libraries = 'x'",
    "GRANT CONNECT ON DATABASE db_$b TO app_$a",
    "REVOKE CONNECT ON DATABASE db_$b FROM app_$b",
    "COMMENT ON DATABASE db_$b IS 'x'",
    "SELECT pg_database_size('db_$b')",
    // Ownership.
    "CREATE SCHEMA AUTHORIZATION db_$b",
    "CREATE TABLE own (); ALTER TABLE own OWNER TO db_$b",
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql SECURITY DEFINER RETURN 1; ALTER FUNCTION f OWNER TO postgres",
    // Files and programs.
    "COPY (SELECT 1) TO PROGRAM 'id'",
    "CREATE TABLE own (t text); COPY own FROM PROGRAM 'id'",
    "CREATE TABLE own (t text); COPY own FROM '/etc/passwd'",
    "COPY (SELECT 1) TO '/var/tmp/svc-node-test'",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_read_binary_file('PG_VERSION')",
    "SELECT pg_ls_dir('.')",
    "SELECT pg_ls_logdir()",
    "SELECT pg_ls_waldir()",
    "SELECT pg_stat_file('PG_VERSION')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_export(lo_create(0), '/var/tmp/svc-node-test')",
    // Code.
    "CREATE EXTENSION dblink",
    "CREATE EXTENSION postgres_fdw",
    "CREATE EXTENSION file_fdw",
    "CREATE EXTENSION pg_stat_statements",
    "CREATE EXTENSION plpython3u",
    "CREATE FUNCTION f() RETURNS int LANGUAGE c AS 'libc.so.6', 'getpid'",
    "CREATE FUNCTION f() RETURNS int LANGUAGE internal AS 'pg_backend_pid'",
    "CREATE FOREIGN DATA WRAPPER w",
    "CREATE EVENT TRIGGER e ON ddl_command_start EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "LOAD 'auto_explain'",
    // The cluster.
    "ALTER SYSTEM SET shared_buffers = '1GB'",
    "SET log_statement = 'none'",
    "SET session_replication_role = 'replica'",
    "SET temp_file_limit = -1",
    "SET lc_messages = 'POSIX'",
    "SET session_preload_libraries = 'x'",
    "SELECT pg_reload_conf()",
    "SELECT pg_rotate_logfile()",
    "SELECT pg_switch_wal()",
    "SELECT pg_create_restore_point('x')",
    "SELECT pg_create_logical_replication_slot('x', 'pgoutput')",
    "CREATE TABLESPACE t LOCATION '/tmp'",
    "CREATE SUBSCRIPTION s CONNECTION 'dbname=db_$b' PUBLICATION p",
    "CREATE PUBLICATION p FOR ALL TABLES",
    "SELECT * FROM pg_authid",
    "SELECT * FROM pg_shadow",
    "SELECT * FROM pg_hba_file_rules",
    "SELECT * FROM pg_file_settings",
    "UPDATE pg_database SET datallowconn = false",
    "DELETE FROM pg_auth_members",
    "UPDATE pg_proc SET proacl = NULL",
    "GRANT EXECUTE ON FUNCTION pg_stat_get_activity TO PUBLIC",
    "LOCK TABLE pg_authid",
    "LOCK TABLE pg_database IN ACCESS EXCLUSIVE MODE",
    // The activity of others.
    "SELECT * FROM pg_stat_activity",
    "SELECT * FROM pg_stat_get_activity(NULL)",
    "SELECT * FROM pg_stat_database",
    "SELECT pg_stat_get_db_numbackends(oid) FROM pg_database",
    "SELECT pg_stat_get_backend_idset()",
    "SELECT pg_stat_get_backend_activity($pid)",
    "SELECT * FROM pg_locks",
    "SELECT pg_lock_status()",
    "SELECT pg_blocking_pids($pid)",
    "SELECT * FROM pg_stat_ssl",
    "SELECT * FROM pg_stat_replication",
    "SELECT * FROM pg_stat_progress_create_index",
    "SELECT * FROM pg_prepared_xacts",
    "SELECT pg_tablespace_size('pg_default')",
    "SELECT pg_log_backend_memory_contexts($pid)",
    "SELECT pg_cancel_backend($pid)",
    "SELECT pg_terminate_backend($pid)",
];

/// A text that must not become visible outside the other database.
const MARK: &str = "confidential-mark";

#[tokio::test(flavor = "multi_thread")]
async fn no_login_reaches_another_project_or_the_cluster() {
    let Some(mut kit) = Kit::start().await else { return };
    for project in ["prj_a", "prj_b"] {
        kit.enable(project).await;
    }
    let token = kit.add_token("prj_a", None);
    kit.applied("prj_a").await;
    let other = kit.session("prj_b").await;
    let pid = number(&other, "SELECT pg_backend_pid()").await;
    let (a, b) = (kit.name("prj_a").replace("db_", ""), kit.name("prj_b").replace("db_", ""));
    other
        .batch_execute(&format!(
            "CREATE TABLE \"{MARK}\" AS SELECT '{MARK}' AS text; COMMENT ON TABLE \"{MARK}\" IS '{MARK}';
         SELECT lo_from_bytea(1, '{MARK}'); SELECT pg_advisory_lock(1); LISTEN channel;
         SET application_name = '{MARK}'"
        ))
        .await
        .unwrap();
    assert!(ATTEMPTS.len() >= 40);
    for user in [kit.app("prj_a"), token] {
        for attempt in ATTEMPTS {
            let session = kit.log_in(&user, PASSWORD, &kit.name("prj_a")).await.unwrap();
            let statement = attempt.replace("$a", &a).replace("$b", &b).replace("$pid", &pid.to_string());
            let result = session.simple_query(&statement).await;
            let error = result.map(|rows| rows.len()).expect_err(&statement);
            assert_ne!(error.code(), Some(&SqlState::SYNTAX_ERROR), "{statement}: {error}");
        }
        for database in [&format!("db_{b}"), "svc_node", "svc_template", "postgres", "template1"] {
            assert!(kit.log_in(&user, PASSWORD, database).await.is_err(), "{user} {database}");
        }
        let session = kit.log_in(&user, PASSWORD, &kit.name("prj_a")).await.unwrap();
        // Locks and large objects belong to one database, so those of the other project are not accessible.
        assert_eq!(number(&session, "SELECT pg_try_advisory_lock(1)::int").await, 1);
        assert!(session.batch_execute("SELECT lo_get(1)").await.is_err());
        assert!(!visible(&session).await.contains(MARK));
    }
    // The attempts had no effect on the other project.
    assert_eq!(number(&other, &format!("SELECT count(*) FROM \"{MARK}\"")).await, 1);
    for user in [format!("node_{a}"), format!("dump_{a}"), format!("db_{a}"), "postgres".to_owned()] {
        assert!(kit.log_in(&user, PASSWORD, &format!("db_{a}")).await.is_err(), "{user}");
    }
}

/// Returns everything that a login can read in the catalogs.
async fn visible(session: &Client) -> String {
    let tables = "SELECT c.oid::regclass::text FROM pg_class c WHERE relnamespace = 'pg_catalog'::regnamespace
        AND relkind IN ('r', 'v') AND has_table_privilege(oid, 'SELECT')";
    let mut text = String::new();
    for row in session.query(tables, &[]).await.unwrap() {
        let table: String = row.get(0);
        // Some views call functions that are closed.
        for message in session.simple_query(&format!("SELECT t::text FROM {table} t")).await.unwrap_or_default() {
            if let SimpleQueryMessage::Row(row) = message {
                text.push_str(row.get(0).unwrap_or_default());
            }
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn code_in_a_restored_database_gains_no_power() {
    let Some(mut kit) = Kit::start().await else { return };
    for project in ["prj_a", "prj_b"] {
        kit.enable(project).await;
    }
    let (app, other) = (kit.app("prj_a"), kit.app("prj_b"));
    let session = kit.session("prj_a").await;
    session
        .batch_execute(&format!(
            "CREATE FUNCTION escape(statement text) RETURNS bool LANGUAGE plpgsql AS $$
         BEGIN
            PERFORM set_config('role', 'none', false);
            EXECUTE statement;
            RETURN true;
         EXCEPTION WHEN OTHERS THEN RETURN true;
         END $$;
         CREATE TABLE attempts (statement text CHECK (escape(statement)));
         INSERT INTO attempts VALUES ('CREATE ROLE evil SUPERUSER LOGIN'), ('ALTER ROLE {app} SUPERUSER'),
            ('ALTER ROLE {other} PASSWORD ''evil'''), ('COPY (SELECT 1) TO PROGRAM ''touch /var/tmp/svc-node-evil'''),
            ('ALTER SYSTEM SET log_statement = ''all'''), ('GRANT pg_read_all_data TO {app}'),
            ('CREATE DATABASE evil');
         CREATE TABLE copies (statement text DEFAULT 'x', done bool GENERATED ALWAYS AS (statement IS NULL) STORED);
         CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN PERFORM escape(new.statement); RETURN new; END $$;
         CREATE TRIGGER fire BEFORE INSERT ON attempts FOR EACH ROW EXECUTE FUNCTION fire();
         ALTER TABLE attempts ENABLE ALWAYS TRIGGER fire"
        ))
        .await
        .unwrap();
    let generation = kit.generation("prj_a").await;
    kit.restore("prj_a", &generation).await;
    let admin = kit.superuser("svc_node").await;
    let evil = "SELECT (SELECT count(*) FROM pg_roles WHERE rolname = 'evil' OR rolname ~ '^(db|app|node|tok)_' AND (rolsuper OR rolbypassrls))
        + (SELECT count(*) FROM pg_database WHERE datname = 'evil') + (SELECT count(*) FROM pg_auth_members WHERE roleid = 'pg_read_all_data'::regrole)";
    assert_eq!(number(&admin, evil).await, 0);
    assert!(!std::path::Path::new("/var/tmp/svc-node-evil").exists());
    kit.log_in(&other, PASSWORD, &kit.name("prj_b")).await.unwrap();
}

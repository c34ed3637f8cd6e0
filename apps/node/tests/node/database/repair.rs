//! Repair of changes that the node did not make.

use protocol::{DatabaseReport, GenerationRef};

use super::kit::{Kit, PASSWORD, eventually, number};

/// The roles, settings, memberships and databases of the node, without passwords.
const STATE: &str = "
    SELECT coalesce(string_agg(line, E'\\n' ORDER BY line), '') FROM (
        SELECT concat_ws(' ', 'role', rolname, rolcanlogin, rolinherit, rolsuper, rolcreaterole, rolcreatedb, rolbypassrls,
            rolreplication, rolconnlimit, rolvaliduntil) FROM pg_roles WHERE rolname ~ '^(db|app|node|dump|tok)_'
        UNION ALL SELECT concat_ws(' ', 'member', roleid::regrole, member::regrole, admin_option,
            to_jsonb(m) ->> 'inherit_option') FROM pg_auth_members m
            WHERE roleid::regrole::text ~ '^(db|app|node|dump|tok)_' OR member::regrole::text ~ '^(db|app|node|dump|tok)_'
        UNION ALL SELECT concat_ws(' ', 'setting', setrole::regrole, setdatabase, setconfig) FROM pg_db_role_setting
            WHERE setrole <> 0
        UNION ALL SELECT concat_ws(' ', 'database', datname, datdba::regrole, datallowconn, datconnlimit, datistemplate,
            (SELECT string_agg(acl::text, ',' ORDER BY acl::text) FROM unnest(datacl) acl)) FROM pg_database
            WHERE datname ~ '^(db|new|old)_'
    ) AS lines (line)";

const STRAY: &str = "01jd00000000000000000stray";

async fn state(kit: &Kit) -> String {
    kit.superuser("svc_node").await.query_one(STATE, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn manual_changes_are_repaired() {
    let Some(mut kit) = Kit::start().await else { return };
    for project in ["prj_a", "prj_b"] {
        kit.enable(project).await;
    }
    let token = kit.add_token("prj_a", Some("2099-01-01T00:00:00.000Z".to_owned()));
    kit.applied("prj_a").await;
    let (db, app, other) = (kit.name("prj_a"), kit.app("prj_a"), kit.app("prj_b"));
    let node = db.replace("db_", "node_");
    let admin = kit.superuser("svc_node").await;
    // These roles belong to an operator.
    admin.batch_execute("CREATE ROLE app_user LOGIN; CREATE ROLE db_owner").await.unwrap();
    let expected = state(&kit).await;
    // An operator makes these changes.
    let manual = [
        format!("ALTER ROLE {app} SUPERUSER CREATEROLE"),
        format!("ALTER ROLE {app} NOLOGIN VALID UNTIL '2020-01-01' CONNECTION LIMIT 1"),
        format!("ALTER ROLE {db} LOGIN PASSWORD 'x'"),
        format!("ALTER ROLE {token} VALID UNTIL 'infinity'"),
        format!("ALTER ROLE {token} RESET ALL"),
        format!("ALTER ROLE {node} BYPASSRLS INHERIT"),
        format!("ALTER DATABASE {db} CONNECTION LIMIT 0"),
        format!("ALTER DATABASE {db} ALLOW_CONNECTIONS false"),
        format!("ALTER DATABASE {db} OWNER TO CURRENT_USER"),
        format!("GRANT ALL ON DATABASE {db} TO PUBLIC, {other}"),
        format!("REVOKE ALL ON DATABASE {db} FROM {db}, {app}"),
        format!("GRANT {db} TO {other}"),
        format!("REVOKE {db} FROM {app}"),
        format!("GRANT pg_read_all_data, pg_execute_server_program TO {db}, {app}"),
        format!("ALTER ROLE {app} RESET role"),
        format!("ALTER ROLE {app} IN DATABASE {db} SET role = '{app}'"),
        format!("DROP OWNED BY {app}; DROP ROLE {app}"),
        format!("CREATE ROLE app_{STRAY} LOGIN SUPERUSER"),
        format!("CREATE DATABASE new_{STRAY}"),
    ];
    for statement in &manual {
        admin.batch_execute(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    assert_ne!(state(&kit).await, expected);
    eventually("the repair", async || state(&kit).await == expected).await;
    // The tenant itself makes these changes.
    let session = kit.session("prj_a").await;
    for statement in [
        format!("ALTER DATABASE {db} CONNECTION LIMIT 1"),
        format!("GRANT CONNECT ON DATABASE {db} TO PUBLIC"),
        format!("REVOKE CONNECT ON DATABASE {db} FROM {token}"),
        format!("ALTER DATABASE {db} IS_TEMPLATE false ALLOW_CONNECTIONS false"),
        format!("SET ROLE NONE; ALTER ROLE {app} PASSWORD 'mine'"),
        format!("ALTER ROLE {app} SET role = 'none'"),
        format!("ALTER ROLE {app} IN DATABASE {db} SET statement_timeout = 0"),
        format!("GRANT {app} TO {other}"),
    ] {
        // Newer versions of Postgres may refuse some of these statements.
        let _ = session.batch_execute(&statement).await;
    }
    eventually("the repair", async || state(&kit).await == expected).await;
    assert!(kit.log_in(&app, "mine", &db).await.is_err());
    kit.log_in(&app, PASSWORD, &db).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_database_is_created_again_from_its_source() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    kit.session("prj_a").await.batch_execute("CREATE TABLE t AS SELECT 42 AS n").await.unwrap();
    let generation = kit.generation("prj_a").await;
    let database = kit.name("prj_a");
    kit.change("prj_a", |desired| desired.source = Some(generation.clone()));
    kit.applied("prj_a").await;
    let admin = kit.superuser("svc_node").await;
    admin.batch_execute(&format!("DROP DATABASE {database} WITH (FORCE)")).await.unwrap();
    kit.reported("prj_a", "the recovery", |report| report.ready && report.recovered_from.is_some()).await;
    assert_eq!(kit.report("prj_a").unwrap().recovered_from, Some(generation.key));
    assert_eq!(number(&kit.session("prj_a").await, "SELECT n FROM t").await, 42);
    // The same process creates it again from the same source.
    admin.batch_execute(&format!("DROP DATABASE {database} WITH (FORCE)")).await.unwrap();
    kit.change("prj_a", |_| ());
    kit.applied("prj_a").await;
    assert_eq!(number(&kit.session("prj_a").await, "SELECT n FROM t").await, 42);
    // The repair also works without the node's tables and the template, as on a new disk.
    kit.node.kill();
    drop(admin);
    let admin = kit.superuser("postgres").await;
    for name in [&database, "svc_node"] {
        admin.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.unwrap();
    }
    admin.batch_execute("DROP DATABASE svc_template").await.unwrap();
    kit.restart_node_after_kill();
    kit.change("prj_a", |_| ());
    kit.applied("prj_a").await;
    assert_eq!(number(&kit.session("prj_a").await, "SELECT n FROM t").await, 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_database_that_was_prepared_from_an_earlier_source_is_not_used() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    kit.session("prj_a").await.batch_execute("CREATE TABLE t AS SELECT 42 AS n").await.unwrap();
    let generation = kit.generation("prj_a").await;
    kit.node.kill();
    // The node was killed after it had prepared the missing database from another generation, which was empty.
    let (admin, database) = (kit.superuser("svc_node").await, kit.name("prj_a"));
    let prepared = database.replace("db_", "new_");
    for statement in [
        format!("DROP DATABASE {database} WITH (FORCE)"),
        format!("CREATE DATABASE {prepared} TEMPLATE svc_template"),
        "UPDATE svc.databases SET prepared_operation = id, prepared_key = 'prj_a/other.dump', is_prepared = true"
            .into(),
    ] {
        admin.batch_execute(&statement).await.unwrap();
    }
    kit.change("prj_a", |desired| desired.source = Some(generation.clone()));
    kit.restart_node_after_kill();
    let report = kit.applied("prj_a").await;
    assert_eq!(report.recovered_from, Some(generation.key));
    assert_eq!(number(&kit.session("prj_a").await, "SELECT n FROM t").await, 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn database_that_disappears_during_a_reconciliation_is_created_again_from_its_source() {
    const WAITING: &str =
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'pg_db_role_setting'::regclass";
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    kit.session("prj_a").await.batch_execute("CREATE TABLE t AS SELECT 42 AS n").await.unwrap();
    let generation = kit.generation("prj_a").await;
    kit.change("prj_a", |desired| desired.source = Some(generation.clone()));
    kit.applied("prj_a").await;
    let database = kit.name("prj_a");
    let (admin, observer) = (kit.superuser("svc_node").await, kit.superuser("svc_node").await);
    // The node reads this catalog after it has found the database.
    admin.batch_execute("BEGIN; LOCK TABLE pg_db_role_setting IN ACCESS EXCLUSIVE MODE").await.unwrap();
    kit.change("prj_a", |_| ());
    eventually("the sweep and the reconciliation", async || number(&observer, WAITING).await >= 2).await;
    admin.batch_execute(&format!("ALTER DATABASE {database} RENAME TO moved; COMMIT")).await.unwrap();
    let report = kit.reported("prj_a", "the recovery", |report| report.ready && report.recovered_from.is_some()).await;
    assert_eq!(report.recovered_from, Some(generation.key));
    assert_eq!(number(&kit.session("prj_a").await, "SELECT n FROM t").await, 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_source_prevents_no_restore() {
    let Some(mut kit) = Kit::start().await else { return };
    kit.enable("prj_a").await;
    kit.session("prj_a").await.batch_execute("CREATE TABLE t AS SELECT 42 AS n").await.unwrap();
    let generation = kit.generation("prj_a").await;
    let missing = GenerationRef { key: "prj_a/missing.dump".to_owned(), ..generation.clone() };
    kit.change("prj_a", |desired| desired.source = Some(missing));
    kit.applied("prj_a").await;
    let admin = kit.superuser("svc_node").await;
    admin.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", kit.name("prj_a"))).await.unwrap();
    let is_failed = |report: &DatabaseReport| {
        let error = report.backup_error.as_ref().filter(|_| !report.ready);
        error.is_some_and(|error| {
            error.ends_with("is missing in the backup store. It stays offline until you restore another backup")
        })
    };
    kit.reported("prj_a", "the failure", is_failed).await;
    kit.restore("prj_a", &generation).await;
    assert_eq!(number(&kit.session("prj_a").await, "SELECT n FROM t").await, 42);
}

//! Databases whose content attacks the node.

use protocol::GenerationRef;

use super::Rig;
use super::rig::NEVER;
use crate::storage::store::{Kind, TestStore};

/// A function that constraints, defaults, indexes and triggers call. It makes several attempts to get more power, and
/// records the result and the current roles. The restore calls it in a session of the node.
const ATTACK: &str = r#"
CREATE TABLE log (attempt text, outcome text, role text, login text);
CREATE FUNCTION public.attack(value text) RETURNS text LANGUAGE plpgsql AS $f$
DECLARE attempt text; outcome text;
BEGIN
    FOREACH attempt IN ARRAY ARRAY[
        'RESET ROLE', 'SET ROLE NONE', 'SET SESSION AUTHORIZATION DEFAULT', 'SET ROLE postgres',
        'SET SESSION AUTHORIZATION postgres', 'CREATE ROLE pwned SUPERUSER', 'ALTER ROLE db_00000000000000000000000001 SUPERUSER',
        'ALTER ROLE dump_00000000000000000000000001 SUPERUSER', 'ALTER ROLE load_00000000000000000000000001 SUPERUSER',
        'ALTER ROLE load_00000000000000000000000001 LOGIN CONNECTION LIMIT -1', 'ALTER ROLE dump_00000000000000000000000001 PASSWORD ''x''', 'GRANT pg_read_server_files TO db_00000000000000000000000001',
        'COPY (SELECT 1) TO PROGRAM ''touch /var/tmp/svc-node-attacked''', 'COPY (SELECT 1) TO ''/var/tmp/svc-node-attacked''',
        'CREATE EXTENSION dblink', 'CREATE EXTENSION file_fdw', 'CREATE LANGUAGE plpython3u',
        'ALTER SYSTEM SET archive_command = ''touch /var/tmp/svc-node-attacked''',
        'SET session_replication_role = replica', 'SET search_path = public, pg_catalog',
        'CREATE EVENT TRIGGER e ON ddl_command_start EXECUTE FUNCTION public.attack()',
        'SELECT pg_read_file(''/etc/passwd'')', 'SELECT lo_import(''/etc/passwd'')',
        'SELECT pg_reload_conf()', 'SELECT * FROM pg_authid'
    ] LOOP
        BEGIN
            EXECUTE attempt;
            outcome := 'done';
        EXCEPTION WHEN OTHERS THEN
            outcome := 'refused';
        END;
        BEGIN
            INSERT INTO public.log VALUES (attempt, outcome, current_user, session_user);
        EXCEPTION WHEN OTHERS THEN
            NULL;
        END;
    END LOOP;
    RETURN value;
END $f$;
-- Postgres refuses the statements of an immutable function, but not those of a function that it calls.
CREATE FUNCTION public.immutable_attack(value text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $f$
BEGIN RETURN public.attack(value); END $f$;
CREATE FUNCTION public.attack() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN PERFORM public.attack('x'); RETURN NEW; END $f$;
CREATE TABLE checked (value text CHECK (public.attack(value) IS NOT NULL));
CREATE TABLE generated (value text DEFAULT public.attack('x'), derived text GENERATED ALWAYS AS (public.immutable_attack(value)) STORED);
CREATE TABLE indexed (value text);
CREATE INDEX attack ON indexed (public.immutable_attack(value));
CREATE TABLE triggered (value text);
CREATE TRIGGER attack BEFORE INSERT ON triggered FOR EACH ROW EXECUTE FUNCTION public.attack();
ALTER TABLE triggered ENABLE ALWAYS TRIGGER attack;
CREATE MATERIALIZED VIEW viewed AS SELECT public.attack('x');
-- A name that comes first in a search path that contains it.
CREATE FUNCTION public.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS 'SELECT public.attack($1)';
CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = pg_catalog.textne);
INSERT INTO checked VALUES ('1');
INSERT INTO generated VALUES ('1');
INSERT INTO indexed VALUES ('1');
INSERT INTO triggered VALUES ('1');
-- After an attack in this session.
SET ROLE db_00000000000000000000000001;
CREATE TABLE zz_last (value text);
TRUNCATE log;
"#;

#[tokio::test(flavor = "multi_thread")]
async fn functions_of_a_tenant_gain_nothing_during_a_restore() {
    let Some(rig) = Rig::start(TestStore::start(Kind::Folder).await, NEVER).await else { return };
    let source = rig.create("prj_1").await;
    source.session.batch_execute(ATTACK).await.unwrap();
    let roles = "SELECT string_agg(r::text, ',' ORDER BY oid) FROM pg_catalog.pg_authid r \
                 WHERE rolname !~ '^load_'";
    let members = "SELECT string_agg(m::text, ',' ORDER BY m) FROM pg_catalog.pg_auth_members m";
    let state = async || {
        let text = async |query| rig.admin.query_one(query, &[]).await.unwrap().get::<_, Option<String>>(0);
        (text(roles).await, text(members).await)
    };
    let before = state().await;

    let sealed = rig.seal(&source, "opn_1").await;
    let credentials = rig.create_empty(&source, "new_1").await;
    let generation = GenerationRef { key: sealed.key, size_bytes: sealed.size_bytes, sha256: sealed.sha256 };
    rig.restore(&source, &generation, "new_1").await.unwrap();

    assert_eq!(state().await, before);
    let login = "SELECT count(*) FROM pg_roles WHERE rolname ~ '^load_' AND (rolsuper OR rolcanlogin OR rolbypassrls OR rolconnlimit <> 1)";
    assert_eq!(rig.count(login).await, 0);
    let restored = rig.session(&credentials).await;
    let query = "SELECT attempt, outcome, role, login FROM log WHERE attempt NOT LIKE '%search_path%'";
    let attempts = restored.query(query, &[]).await.unwrap();
    assert!(attempts.len() > 20, "the functions did not run");
    for row in attempts {
        let (attempt, outcome): (&str, &str) = (row.get(0), row.get(1));
        let is_harmless = ["RESET ROLE", "SET ROLE NONE", "SET SESSION AUTHORIZATION DEFAULT"].contains(&attempt);
        assert!(outcome == "refused" || is_harmless, "{attempt}");
        let roles: (&str, &str) = (row.get(2), row.get(3));
        assert!(roles.0 != "postgres" && roles.1 == "load_00000000000000000000000001", "{roles:?}");
    }
    // The functions reset the role, but the login of the restore still owns no object.
    let others = "SELECT count(*) FROM pg_shdepend d JOIN pg_database b ON b.oid = d.dbid \
                  WHERE b.datname = 'new_1' AND d.deptype = 'o' AND d.refobjid <> 'db_00000000000000000000000001'::regrole";
    assert_eq!(rig.count(others).await, 0);
    assert_eq!(rig.sql("new_1").matches("CREATE TABLE").count(), 6);
    assert!(!std::fs::exists("/var/tmp/svc-node-attacked").unwrap());
}

/// A database with millions of large objects makes `pg_dump` large.
#[test]
fn programs_of_postgres_have_limited_memory_and_are_killed_first() {
    let node = std::process::id().to_string();
    let arguments = ["--exec-postgres", &node, "67108864", "/bin/sh", "-c", "ulimit -v; cat /proc/self/oom_score_adj"];
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_svc-node")).args(arguments).output().unwrap();
    assert_eq!((String::from_utf8_lossy(&output.stdout).as_ref(), output.status.success()), ("65536\n1000\n", true));
}

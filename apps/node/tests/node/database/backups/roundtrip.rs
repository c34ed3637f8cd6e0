//! A restored database equals its source.

use std::fs;
use std::process::Output;

use protocol::GenerationRef;

use super::rig::NEVER;
use super::{Rig, Source};
use crate::control_plane::sha256;
use crate::running::Dir;
use crate::storage::store::{Kind, TestStore};

#[tokio::test(flavor = "multi_thread")]
async fn restored_database_equals_its_source_on_each_store() {
    for kind in [Kind::Folder, Kind::S3] {
        let Some(rig) = Rig::start(TestStore::start(kind).await, NEVER).await else { return };
        let source = rig.create("prj_1").await;
        source.session.batch_execute(include_str!("source.sql")).await.unwrap();
        // The large row makes an upload with several parts, and is larger than any buffer.
        let random = "INSERT INTO people (name, content) SELECT 'large', \
                      string_agg(sha256(i::text::bytea), NULL) FROM generate_series(1, 500000) AS i";
        source.session.batch_execute(random).await.unwrap();
        let before = rig.sql(&source.entry.credentials.database);

        let sealed = rig.seal(&source, "opn_1").await;
        let content = fs::read(rig.store_file(&sealed.key)).unwrap();
        assert!(content.starts_with(b"PGDMP") && content.len() > 12 << 20, "{}", content.len());
        assert_eq!((content.len() as u64, sha256(&content)), (sealed.size_bytes, sealed.sha256.clone()));
        assert!(sealed.key.starts_with("prj_1/2") && sealed.key.ends_with(".dump"), "{}", sealed.key);

        rig.create_empty(&source, "new_1").await;
        let generation = GenerationRef { key: sealed.key, size_bytes: sealed.size_bytes, sha256: sealed.sha256 };
        rig.restore(&source, &generation, "new_1").await.unwrap();
        let after = rig.sql("new_1");
        let difference = before.lines().zip(after.lines()).find(|(before, after)| before != after);
        assert!(before == after, "{difference:?}");
        assert!(
            before.contains("OWNER TO db_00000000000000000000000001;") && before.contains("FORCE ROW LEVEL SECURITY")
        );
        assert!(!fs::exists("/var/tmp/svc-node-injected").unwrap());
        assert_eq!(rig.store.blobs().len(), 1);
    }
}

/// Tests a generation that names roles which were dropped since: revoked tokens, and the roles of an earlier database.
#[tokio::test(flavor = "multi_thread")]
async fn generation_is_restored_without_roles_that_no_longer_exist() {
    let Some(rig) = Rig::start(TestStore::start(Kind::Folder).await, NEVER).await else { return };
    let source = rig.create("prj_1").await;
    rig.admin.batch_execute("CREATE ROLE tok_1; CREATE ROLE app_1").await.unwrap();
    // A login may set privileges in its own name.
    let superuser = rig.superuser(&source.entry.credentials.database).await;
    let own = "ALTER DEFAULT PRIVILEGES FOR ROLE app_1 GRANT SELECT ON TABLES TO db_00000000000000000000000001";
    superuser.batch_execute(own).await.unwrap();
    let objects = "CREATE TABLE t (id integer); INSERT INTO t VALUES (1); GRANT SELECT ON t TO app_1; \
                   CREATE TABLE u (id integer); GRANT SELECT ON u TO tok_1; GRANT UPDATE ON u TO PUBLIC; \
                   ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t TO tok_1 USING (true); \
                   COMMENT ON POLICY p ON t IS 'for a token'; \
                   SET app.tenant = 'a'; CREATE MATERIALIZED VIEW m AS SELECT current_setting('app.tenant') AS tenant;";
    source.session.batch_execute(objects).await.unwrap();
    let sealed = rig.seal(&source, "opn_1").await;
    source.session.batch_execute("DROP OWNED BY tok_1; DROP POLICY p ON t; DROP TABLE u").await.unwrap_err();
    let revoke = "DROP POLICY p ON t; REVOKE ALL ON u FROM tok_1";
    source.session.batch_execute(revoke).await.unwrap();
    rig.admin.batch_execute("DROP ROLE tok_1").await.unwrap();

    // The new database has another owner, as after a deletion.
    let other = rig.create("prj_2").await;
    let generation = GenerationRef { key: sealed.key, size_bytes: sealed.size_bytes, sha256: sealed.sha256 };
    rig.restore(&other, &generation, &other.entry.credentials.database).await.unwrap();
    let restored = rig.sql(&other.entry.credentials.database);
    assert!(restored.contains("GRANT SELECT ON TABLE public.t TO app_1;") && !restored.contains("tok_1"), "{restored}");
    assert!(!restored.contains("db_00000000000000000000000001"), "{restored}");
    let count: i64 = other.session.query_one("SELECT count(*) FROM t", &[]).await.unwrap().get(0);
    assert_eq!(count, 1);
    // The query of the view needs a setting of the application.
    other.session.batch_execute("SELECT * FROM m").await.unwrap_err();
    other.session.batch_execute("SET app.tenant = 'a'; REFRESH MATERIALIZED VIEW m").await.unwrap();
}

/// Tests the commands of docs/backups.md, section "By hand".
#[tokio::test(flavor = "multi_thread")]
async fn stock_pg_restore_restores_a_generation() {
    let Some(rig) = Rig::start(TestStore::start(Kind::Folder).await, NEVER).await else { return };
    let source = rig.create("prj_1").await;
    let objects = "CREATE TABLE t AS SELECT generate_series(1, 100) AS i; CREATE INDEX ON t (i)";
    source.session.batch_execute(objects).await.unwrap();
    let sealed = rig.seal(&source, "opn_1").await;
    rig.admin.batch_execute("CREATE DATABASE copy TEMPLATE template0").await.unwrap();
    let restored = rig.run("pg_restore", "copy", &["--no-owner", "--no-acl", "--exit-on-error"], &sealed.key);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let owner = "db_00000000000000000000000001";
    assert_eq!(rig.sql("copy"), rig.sql(owner).replace(owner, "postgres"));
}

/// Tests the commands of docs/backups.md that load a copy, in a project with users of app sign-in.
#[tokio::test(flavor = "multi_thread")]
async fn copy_is_loaded_without_the_users_of_app_sign_in() {
    const COUNT: &str = "SELECT count(*) FROM t";
    let Some(rig) = Rig::start(TestStore::start(Kind::Folder).await, NEVER).await else { return };
    let source = rig.create("prj_1").await;
    source.session.batch_execute("CREATE TABLE t AS SELECT generate_series(1, 100) AS i").await.unwrap();
    let (database, dump) = (&source.entry.credentials.database, &source.entry.credentials.user);
    let auth = database.replace("db_", "auth_");
    let users = format!(
        "CREATE ROLE {auth}; GRANT {auth} TO {dump}; CREATE SCHEMA svc_auth AUTHORIZATION {auth}; SET ROLE {auth}; \
         CREATE TABLE svc_auth.users AS SELECT 'Eve; DROP TABLE public.newer; --' AS name"
    );
    rig.superuser(database).await.batch_execute(&users).await.unwrap();
    let sealed = rig.seal(&source, "opn_1").await;
    rig.admin.batch_execute("CREATE DATABASE copy TEMPLATE template0").await.unwrap();
    let restored = rig.run("pg_restore", "copy", &["--no-owner", "--no-acl", "--exit-on-error"], &sealed.key);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    source.session.batch_execute("DROP TABLE t; CREATE TABLE newer ()").await.unwrap();

    let loaded = load_copy(&rig, &source);
    assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
    let count = source.session.query_one(COUNT, &[]).await.unwrap().get::<_, i64>(0);
    assert_eq!(count, 100);
    source.session.batch_execute("SELECT FROM newer").await.unwrap();
    // The project contains the table now.
    assert_eq!(load_copy(&rig, &source).status.code(), Some(3));
    let count = source.session.query_one(COUNT, &[]).await.unwrap().get::<_, i64>(0);
    assert_eq!(count, 100);
}

/// Executes the commands of docs/backups.md that load the database `copy` into the database of a project.
fn load_copy(rig: &Rig, project: &Source) -> Output {
    const GUIDE: &str = include_str!("../../../../../../docs/backups.md");
    // Runs psql like `svc db connect`.
    const SVC: &str =
        "svc() { shift 3; PGDATABASE=$PROJECT PGUSER=$LOGIN PGPASSWORD=$HUSH PGOPTIONS=$ROLE psql \"$@\"; }";
    let commands = GUIDE.lines().filter_map(|line| line.strip_prefix("$ "));
    let commands: Vec<&str> = commands.filter(|command| command.contains("changed.dump")).collect();
    assert_eq!(commands.len(), 2);
    let (login, folder) = (&project.entry.credentials, Dir::new());
    let mut shell = rig.postgres.shell(&format!("{SVC}\n{}", commands.join("\n")));
    shell.current_dir(folder.path());
    shell.env("ROLE", format!("-c role={}", login.role)).env("HUSH", login.password.reveal());
    shell.envs([("PROJECT", &login.database), ("LOGIN", &login.user)]);
    shell.output().unwrap()
}

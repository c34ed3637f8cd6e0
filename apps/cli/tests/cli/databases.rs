//! `svc db` on the whole platform: a real server, node, Postgres and `workerd`. The project is the to-do list of
//! `examples`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::{PrivatePostgres, write_program};
use tokio_postgres::NoTls;
use url::form_urlencoded;

use crate::node::{Node, workerd};
use crate::support::{CommandResult, Machine, Platform};

const HOST: &str = "todo-ada.localhost";

/// The platform with the deployed to-do list, and the machine of Ada with the clients of Postgres.
struct Fixture {
    ada: Machine,
    node: Node,
    postgres: PrivatePostgres,
    platform: Platform,
}

impl Fixture {
    async fn start() -> Option<Self> {
        Self::start_with("disable").await
    }

    /// Starts the platform with a node that announces this `sslmode`.
    async fn start_with(sslmode: &str) -> Option<Self> {
        let (workerd, postgres) = (workerd()?, PrivatePostgres::start()?);
        let platform = Platform::start().await;
        let settings = [
            ("SVC_NODE_WORKERD", workerd.display().to_string()),
            ("SVC_NODE_DATABASE_URL", postgres.url()),
            ("SVC_NODE_DATABASE_ADDRESS", postgres.address()),
            ("SVC_NODE_DATABASE_SSLMODE", sslmode.to_owned()),
            ("SVC_NODE_PG_BIN", postgres.programs().display().to_string()),
            ("SVC_NODE_BACKUPS", format!("file://{}/backups", platform.folder.path().display())),
            ("SVC_NODE_BACKUP_INTERVAL", "1s".to_owned()),
        ];
        let node = Node::start(&platform, &settings);
        let mut ada = platform.ada();
        let path = format!("{}:{}", postgres.programs().display(), ada.environment["PATH"]);
        ada.environment.insert("PATH", path);
        ada.svc(&["init", "--org", "ada", "--project", "todo"]).succeeds();
        Some(Self { ada, node, postgres, platform })
    }

    /// Runs a statement with `svc db connect`, and returns its result.
    fn psql(&self, statement: &str) -> String {
        let ran = self.ada.svc(&["db", "connect", "--", "--no-psqlrc", "-Atc", statement]).succeeds();
        ran.out.trim_end().to_owned()
    }

    async fn page(&self) -> String {
        self.node.request(Method::GET, HOST, "/").send().await.unwrap().text().await.unwrap()
    }

    /// Submits a form of the page.
    async fn post(&self, path: &str, fields: &[(&str, &str)]) -> u16 {
        let request = self.node.request(Method::POST, HOST, path).header("Origin", format!("http://{HOST}"));
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        request.body(body).send().await.unwrap().status().as_u16()
    }

    async fn add(&self, id: &str, title: &str) {
        let fields = [("id", id), ("title", title), ("due", "2030-01-31")];
        assert_eq!(self.post("/", &fields).await, 303, "{title}");
    }

    /// Waits for a backup of the present content, and returns its number.
    async fn next_backup(&self) -> String {
        let now = self.psql(r#"SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')"#);
        for _ in 0..300 {
            // The schedule skips a database without a write since the last backup.
            self.psql("UPDATE tasks SET title = title");
            let newest = &self.ada.json(&["db", "backups"])["items"][0];
            if newest["createdAt"].as_str().is_some_and(|created| created > now.as_str()) {
                return format!("{}.{}", newest["epoch"], newest["seq"]);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("no backup since {now}");
    }

    /// Runs `pg_dump` without a change, and returns the dump.
    fn dump(&self) -> String {
        let url = self.ada.svc(&["db", "url"]).succeeds().out;
        let mut dump = Command::new(self.postgres.programs().join("pg_dump"));
        let output = dump.args(["--dbname", url.trim()]).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let dump = String::from_utf8(output.stdout).unwrap();
        // Recent versions write a random key into these lines.
        let lines = dump.lines().filter(|line| !line.starts_with("\\restrict") && !line.starts_with("\\unrestrict"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/todo-list")
}

/// Opens a session with the URL of a database. Returns the client and the user of the session.
async fn open_session(url: &str) -> Result<(tokio_postgres::Client, String), tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let user = client.query_one("SELECT session_user::text", &[]).await?.get(0);
    Ok((client, user))
}

#[tokio::test(flavor = "multi_thread")]
async fn database_is_used_backed_up_restored_and_deleted() {
    let Some(it) = Fixture::start().await else { return };
    let ada = &it.ada;
    let folder = example().display().to_string();
    let deployed = ada.svc(&["deploy", &folder, "--org", "ada", "--project", "todo", "--create"]).succeeds();
    deployed.stderr_contains("enabled database").stderr_contains("bindings: env.assets, env.db\n");
    check_connection(ada);

    // Concurrent first requests create the schema.
    it.node.wait_for(HOST, "/", |page| page.contains("name=\"title\"")).await;
    it.psql("DROP TABLE tasks, migrations");
    for page in join_all((0..8).map(|_| it.page())).await {
        assert!(page.contains("name=\"title\""), "{page}");
    }
    assert_eq!(it.psql("SELECT array_agg(version ORDER BY version) FROM migrations"), "{1,2}");
    let ids = [1, 2].map(|number| format!("00000000-0000-4000-8000-00000000000{number}"));
    for title in ["<b>before</b>", "not added again"] {
        it.add(&ids[0], title).await;
    }
    for due in ["2023-02-30", "0000-01-01", "tomorrow"] {
        assert_eq!(it.post("/", &[("id", ids[1].as_str()), ("title", "never"), ("due", due)]).await, 400, "{due}");
    }
    let page = it.page().await;
    assert!(page.contains("&lt;b&gt;before&lt;/b&gt;") && page.contains("due 2030-01-31"), "{page}");
    assert_eq!(it.psql("SELECT title, due FROM tasks"), "<b>before</b>|2030-01-31");
    check_full_list(&it, &ids).await;
    check_token(ada).await;

    // A restore returns exactly the content of the backup, and can be undone.
    let before = it.next_backup().await;
    let content = it.dump();
    it.add(&ids[1], "after").await;
    it.psql("CREATE TABLE later (id int)");
    let unknown = ada.svc(&["db", "restore", "1.999999", "--confirm", "todo"]).fails(5);
    unknown.stderr_contains("no such generation").stderr_contains("next: `svc db backups` lists the backups");
    let elsewhere = ["db", "restore", "1.1", "--confirm", "none", "--project", "none"];
    ada.svc(&elsewhere).fails(5).stderr_contains("svc projects list");
    ada.svc(&["db", "restore", &before]).fails(2).stderr_contains("confirm with --confirm todo");
    let restored = ada.svc(&["db", "restore", &before, "--confirm", "todo"]).succeeds();
    restored.stderr_contains(&format!("restored backup {before}")).stderr_contains("until it is committing");
    let chosen = restored.err.lines().find(|line| line.starts_with(&format!("restoring backup {before} of 20")));
    assert!(chosen.is_some_and(|line| line.ends_with("Z, scheduled")), "{restored:?}");
    assert_eq!(it.dump(), content);
    it.node.wait_for(HOST, "/", |page| page.contains("before") && !page.contains("after")).await;
    let backups = ada.json(&["db", "backups"]);
    let undo = backups["items"].as_array().unwrap().iter().find(|it| it["kind"] == "pre_restore").unwrap();
    let undo = format!("{}.{}", undo["epoch"], undo["seq"]);
    let undone = ada.json(&["db", "restore", &undo, "--confirm", "todo"]);
    assert_eq!((&undone["phase"], &undone["terminalCode"]), (&json!("done"), &json!(null)));
    assert_eq!(it.psql("SELECT count(*) FROM tasks, (SELECT count(*) FROM later) l"), "2");
    let operation = undone["id"].as_str().unwrap();
    ada.svc(&["db", "abort", operation]).fails(1).stderr_contains("code not_abortable");
    // The newest backup may be that of the last restore, which this would undo.
    let latest = ada.svc(&["db", "restore", "--latest", "--confirm", "todo"]).succeeds();
    assert!(latest.err.contains("restoring backup ") && !latest.err.contains(", pre_restore"), "{latest:?}");

    let export = ada.json(&["db", "export"]);
    let object = it.platform.folder.path().join("backups").join(export["key"].as_str().unwrap());
    assert_eq!(object.metadata().unwrap().len(), export["sizeBytes"].as_u64().unwrap());

    ada.svc(&["db", "delete", "--confirm", "site"]).fails(2);
    ada.svc(&["db", "delete", "--confirm", "todo"]).succeeds().stderr_contains("deleted the database");
    let status = ada.svc(&["db", "status"]).succeeds().out;
    assert!(status.starts_with("enabled  no\nbackup   "), "{status}");
    let status = ada.json(&["db", "status"]);
    assert_eq!((&status["db"], &status["lastBackup"]["kind"]), (&json!(false), &json!("final")));
    assert_eq!(ada.json(&["db", "backups"])["items"][0]["kind"], "final");
    it.node.wait_for(HOST, "/", |page| page.contains("has no database")).await;
    ada.svc(&["db", "connect"]).fails(5).stderr_contains("next: `svc db enable`");
}

/// Checks that a full list refuses a new task, but not a form with a task that it contains.
async fn check_full_list(it: &Fixture, [stored, new]: &[String; 2]) {
    it.psql("INSERT INTO tasks (id, title) SELECT gen_random_uuid(), 'other' FROM generate_series(2, 500)");
    it.add(stored, "not added again").await;
    assert_eq!(it.post("/", &[("id", new.as_str()), ("title", "never")]).await, 409);
    it.psql("DELETE FROM tasks WHERE title = 'other'");
}

#[tokio::test(flavor = "multi_thread")]
async fn verified_connection_uses_the_root_certificates_of_the_system() {
    let Some(mut it) = Fixture::start_with("verify-full").await else { return };
    it.ada.svc(&["projects", "create", "todo"]).succeeds();
    for _ in 0..600 {
        // The node may not have announced its Postgres yet.
        if it.ada.svc(&["db", "enable"]).code == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let programs = it.ada.folder.join("programs");
    fs::create_dir(&programs).unwrap();
    write_program(&programs.join("psql"), "#!/bin/sh\necho \"$PGSSLMODE $PGSSLROOTCERT\"\n");
    let path = format!("{}:{}", programs.display(), it.ada.environment["PATH"]);
    it.ada.environment.insert("PATH", path);
    let connected = it.ada.svc(&["db", "connect"]).succeeds().out;
    let (mode, roots) = connected.trim_end().split_once(' ').unwrap();
    assert!(mode == "verify-full" && (roots == "system" || Path::new(roots).is_file()), "{connected}");
    // The choice of the user is kept.
    it.ada.environment.insert("PGSSLROOTCERT", "/own.crt".to_owned());
    assert_eq!(it.ada.svc(&["db", "connect"]).succeeds().out, "verify-full /own.crt\n");
    it.ada.environment.remove("PGSSLROOTCERT");
    let folder = Path::new(&it.ada.environment["HOME"]).join(".postgresql");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("root.crt"), "").unwrap();
    assert_eq!(it.ada.svc(&["db", "connect"]).succeeds().out, "verify-full \n");
}

/// Checks that enabling again changes nothing, and that only `svc db url` shows the password.
fn check_connection(ada: &Machine) {
    let connection = ada.json(&["db", "enable"]);
    assert_eq!(ada.json(&["db", "enable"]), connection);
    let url = ada.svc(&["db", "url"]).succeeds().out;
    assert_eq!(url.trim(), connection["url"]);
    let password = connection["password"].as_str().unwrap();
    let address = format!("{}:{}", connection["host"].as_str().unwrap(), connection["port"]);
    for arguments in [["db", "enable"], ["db", "status"]] {
        let CommandResult { out, err, .. } = ada.svc(&arguments).succeeds();
        assert!(out.contains(&address) && !out.contains(password) && !err.contains(password), "{out}{err}");
    }
    let status = ada.json(&["db", "status"]);
    let expected = ["host", "port", "database", "sslmode"].map(|name| (name.to_owned(), connection[name].clone()));
    assert_eq!((&status["db"], &status["endpoint"]), (&json!(true), &Value::Object(expected.into_iter().collect())));
    assert!(status.get("lastBackup").is_some(), "{status}");
    let mut connect = ada.command(&["db", "connect"]);
    let output = connect.env("PATH", "/nonexistent").output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && stderr.contains("psql is not in PATH"), "{stderr}");
}

/// Checks that a driver can connect with a token until it is revoked, and that its open session stays open.
async fn check_token(ada: &Machine) {
    ada.svc(&["db", "tokens", "create", "report", "--expires-in", "1s"]).fails(1).stderr_contains("expiresInSeconds");
    let created = ada.svc(&["db", "tokens", "create", "report", "--expires-in", "12h"]).succeeds();
    let url = created.out.trim();
    let mut session = open_session(url).await;
    for _ in 0..1200 {
        if session.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        session = open_session(url).await;
    }
    let (session, user) = session.unwrap();
    let listed = ada.svc(&["db", "tokens", "list"]).succeeds().out;
    assert!(listed.lines().any(|line| line.starts_with(&format!("{user}  report  "))), "{listed}");
    ada.svc(&["db", "tokens", "revoke", &user]).succeeds();
    assert!(open_session(url).await.is_err());
    assert_eq!(session.query_one("SELECT count(*) FROM tasks", &[]).await.unwrap().get::<_, i64>(0), 1);
    ada.svc(&["db", "tokens", "revoke", &user]).fails(5);
}

//! `kill -9` of the control plane and of its Postgres at each phase boundary of an operation, with a real node.
//!
//! A trigger of the test pauses the transaction that moves the operation to a phase, at its commit.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{PrivatePostgres, TestDatabase};

use super::{DATABASE, DELETE, GENERATIONS, RESTORE};
use crate::convergence::node_process::Node;
use crate::paused_commit::{CRASHES, Crash};
use crate::process::Process;
use crate::support::{client, eventually};

const PAUSE: &str = "
    CREATE TABLE public.paused_phases (phase text PRIMARY KEY);
    CREATE FUNCTION public.pause() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        WHILE EXISTS (SELECT FROM public.paused_phases WHERE phase = NEW.phase) LOOP PERFORM pg_sleep(0.01); END LOOP;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER pause AFTER INSERT OR UPDATE OF phase ON databases.operations
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.pause();";

struct Kit {
    server: Process,
    node: Node,
    /// The cluster of the control plane.
    control: PrivatePostgres,
    /// The cluster of the node.
    projects: PrivatePostgres,
    session: String,
    backups: PathBuf,
    _folder: TempDir,
}

impl Kit {
    async fn start() -> Option<Self> {
        let (control, projects) = (PrivatePostgres::start()?, PrivatePostgres::start()?);
        let folder = TempDir::new().unwrap();
        let (limits, backups) = (folder.path().join("limits.toml"), folder.path().join("backups"));
        std::fs::write(&limits, "[abuse]\ndatabase_restores_per_project = 1000\n").unwrap();
        let database = TestDatabase::create_in(&control).await;
        database.run(PAUSE).await;
        let server = Process::on(database, &[("SVC_LIMITS", limits.display().to_string())]).await;
        let settings = [
            ("SVC_NODE_DATABASE_URL", projects.url()),
            ("SVC_NODE_DATABASE_ADDRESS", projects.address()),
            ("SVC_NODE_DATABASE_SSLMODE", "disable".to_owned()),
            ("SVC_NODE_PG_BIN", projects.programs().display().to_string()),
            ("SVC_NODE_BACKUPS", format!("file://{}", backups.display())),
            ("SVC_NODE_BACKUP_INTERVAL", "1s".to_owned()),
        ];
        let node = Node::start(&server, &settings).await;
        let session = server.sign_in().await;
        let kit = Self { server, node, control, projects, session, backups, _folder: folder };
        kit.call("POST", "/v1/orgs/ada/projects", json!({ "name": "site" })).await;
        let announced = "SELECT count(*) FROM convergence.nodes WHERE database_host IS NOT NULL";
        eventually("the node's announcement", async || {
            (kit.server.database.number(announced).await == 1).then_some(())
        })
        .await;
        Some(kit)
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> Value {
        self.server.json(&self.session, method, path, (method == "POST").then_some(body)).await
    }

    /// Enables the database, and returns its URL once the node has created it.
    async fn enable(&self) -> String {
        let url = self.call("POST", DATABASE, json!({})).await["url"].as_str().unwrap().to_owned();
        eventually("the database is usable", async || self.try_psql(&url, "SELECT 1").ok()).await;
        url
    }

    fn try_psql(&self, url: &str, statement: &str) -> Result<String, String> {
        let mut psql = Command::new(self.projects.programs().join("psql"));
        let output = psql.args(["-XAtq", url, "-c", statement]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn psql(&self, url: &str, statement: &str) -> String {
        self.try_psql(url, statement).unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    /// Returns the generations of a kind, the newest first.
    async fn generations(&self, kind: &str) -> Vec<Value> {
        let listed = self.call("GET", GENERATIONS, Value::Null).await;
        listed["items"].as_array().unwrap().iter().filter(|item| item["kind"] == kind).cloned().collect()
    }

    /// Returns the rows of the table `t` in a generation.
    fn content(&self, generation: &Value) -> Vec<String> {
        let object = self.backups.join(generation["offsiteKey"].as_str().unwrap());
        let mut restore = Command::new(self.projects.programs().join("pg_restore"));
        let output = restore.args(["--data-only", "--table=t", "--file=-"]).arg(object).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let rows = text.lines().skip_while(|line| !line.starts_with("COPY ")).skip(1);
        rows.take_while(|line| *line != "\\.").map(str::to_owned).collect()
    }

    /// Returns the newest operation if there are more than `ended` operations: its id, phase and terminal code.
    async fn operation(&self, ended: usize) -> Option<Value> {
        let statement = "SELECT id, phase, terminal_code FROM databases.operations ORDER BY created_at";
        self.server.database.rows(statement).await.get(ended).cloned()
    }

    /// Requests an operation, crashes a process while the operation moves to a phase, and waits until it is done.
    /// Returns its terminal code.
    async fn operate(&mut self, path: &str, body: &Value, phase: &str, crash: Crash) -> Value {
        let ended = self.server.database.number("SELECT count(*) FROM databases.operations").await;
        let ended = usize::try_from(ended).unwrap();
        self.server.database.run(&format!("INSERT INTO paused_phases VALUES ('{phase}')")).await;
        let url = format!("{}{path}", self.server.base);
        // Send the request in a separate task, because the crash can interrupt it.
        let request = client().post(url).bearer_auth(&self.session).json(body).send();
        let request = tokio::spawn(request);
        crash.hit(&mut self.server, &mut self.control, "DELETE FROM paused_phases").await;
        // If the insertion of the operation was not committed, it is lost. The request then fails with an error, and
        // the user repeats it.
        let responded = request.await.unwrap();
        if self.operation(ended).await.is_none() {
            assert_eq!(phase, "draining", "{crash:?}");
            assert!(responded.is_err() || responded.unwrap().status().is_server_error(), "{crash:?}");
            self.call("POST", path, body.clone()).await;
        }
        let operation = eventually("the end of the operation", async || {
            self.operation(ended).await.filter(|operation| operation["phase"] == "done")
        })
        .await;
        operation["terminal_code"].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restore_is_completed_after_a_crash_of_the_control_plane_at_every_phase_boundary() {
    let Some(mut kit) = Kit::start().await else { return };
    let url = kit.enable().await;
    kit.psql(&url, "CREATE TABLE t AS SELECT 0 AS n");
    let generation = eventually("a generation", async || {
        kit.generations("scheduled").await.into_iter().find(|it| kit.content(it) == ["0"])
    })
    .await;
    let body = json!({ "epoch": generation["epoch"], "seq": generation["seq"] });
    let phases = ["draining", "sealing", "committing", "reactivating", "done"];
    let boundaries = phases.into_iter().flat_map(|phase| CRASHES.map(|crash| (phase, crash)));
    for (round, (phase, crash)) in (1..).zip(boundaries) {
        let step = format!("{crash:?} at {phase}");
        eventually(&step, async || kit.try_psql(&url, &format!("UPDATE t SET n = {round}")).ok()).await;
        let before = kit.generations("pre_restore").await.len();
        assert_eq!(kit.operate(RESTORE, &body, phase, crash).await, Value::Null, "{step}");
        let present = eventually(&step, async || kit.try_psql(&url, "SELECT n FROM t").ok()).await;
        assert_eq!(present, "0", "{step}");
        // Exactly one generation contains the acknowledged write that the restore replaced.
        let sealed = kit.generations("pre_restore").await;
        assert_eq!(sealed.len(), before + 1, "{step}");
        assert_eq!(kit.content(&sealed[0]), [round.to_string()], "{step}");
    }
    assert!(kit.node.is_running());
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_is_completed_after_a_crash_of_the_control_plane_at_every_phase_boundary() {
    let Some(mut kit) = Kit::start().await else { return };
    let boundaries = [
        ("draining", Crash::ServerDuringCommit),
        ("sealing", Crash::Postgres),
        ("committing", Crash::ServerBeforeCommit),
        ("done", Crash::ServerDuringCommit),
        ("done", Crash::Postgres),
    ];
    for (round, (phase, crash)) in (1..).zip(boundaries) {
        let (step, url) = (format!("{crash:?} at {phase}"), kit.enable().await);
        kit.psql(&url, &format!("CREATE TABLE t AS SELECT {round} AS n"));
        assert_eq!(kit.operate(DELETE, &json!({ "confirm": "site" }), phase, crash).await, Value::Null, "{step}");
        let finals = kit.generations("final").await;
        assert_eq!((finals.len(), kit.content(&finals[0])), (round, vec![round.to_string()]), "{step}");
        eventually("the database is removed", async || kit.try_psql(&url, "SELECT 1").err()).await;
        assert_eq!(kit.call("GET", DATABASE, Value::Null).await, json!({ "db": false }), "{step}");
    }
}

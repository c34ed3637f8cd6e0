//! `xtask placement`, as an operator runs it.

#![expect(clippy::unwrap_used, reason = "tests panic on unexpected results")]

use std::process::{Command, Output};

use serde_json::json;
use testkit::TestDatabase;

/// The organization `acme` with three projects: `site` has a database part at the node `edge`, `blog` has no placement,
/// and the database of `busy` is being restored.
const PROJECTS: &str = "\
    INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at) \
        VALUES ('00000000-0000-7000-8000-000000000001', 'acme', 'Acme', 'free', false, now()); \
    INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at, deleted_at) VALUES \
        ('00000000-0000-7000-8000-000000000011', '00000000-0000-7000-8000-000000000001', 'site', 'public', 0, now(), NULL), \
        ('00000000-0000-7000-8000-000000000012', '00000000-0000-7000-8000-000000000001', 'blog', 'public', 0, now(), NULL), \
        ('00000000-0000-7000-8000-000000000013', '00000000-0000-7000-8000-000000000001', 'busy', 'public', 0, now(), NULL), \
        ('00000000-0000-7000-8000-000000000014', '00000000-0000-7000-8000-000000000001', 'gone', 'public', 0, now(), now()); \
    INSERT INTO convergence.nodes (id, name, token_hash, created_at) \
        VALUES ('00000000-0000-7000-8000-000000000002', 'edge', '\\x00', now()); \
    INSERT INTO convergence.placements (project_id, node_id, state, epoch, created_at) VALUES \
        ('00000000-0000-7000-8000-000000000011', '00000000-0000-7000-8000-000000000002', 'active', 1, now()), \
        ('00000000-0000-7000-8000-000000000013', '00000000-0000-7000-8000-000000000002', 'sealing', 1, now()); \
    INSERT INTO convergence.parts (project_id, part, node_id, revision, desired, updated_at) VALUES \
        ('00000000-0000-7000-8000-000000000011', 'database', '00000000-0000-7000-8000-000000000002', 1, '{}', now())";

/// Runs a command. Returns whether it succeeded, stdout and stderr.
fn placement(database: &TestDatabase, arguments: &[&str]) -> (bool, String, String) {
    let mut placement = Command::new(env!("CARGO_BIN_EXE_xtask"));
    placement.arg("placement").args(arguments).args(["--database-url", &database.url()]);
    let Output { status, stdout, stderr } = placement.output().unwrap();
    (status.success(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn project_is_suspended_and_resumed() {
    let database = TestDatabase::create().await;
    database.run(PROJECTS).await;
    let state = async || {
        let rows =
            "SELECT p.state, t.revision FROM convergence.placements p JOIN convergence.parts t USING (project_id)";
        database.rows(rows).await.remove(0)
    };
    // Each change gives the part a new revision, so that the node fetches it.
    for (command, printed, expected) in [
        ("suspend", "suspended\n", json!({ "state": "suspended", "revision": 2 })),
        ("suspend", "already suspended\n", json!({ "state": "suspended", "revision": 2 })),
        ("resume", "resumed\n", json!({ "state": "active", "revision": 3 })),
        ("resume", "not suspended\n", json!({ "state": "active", "revision": 3 })),
    ] {
        assert_eq!(
            placement(&database, &[command, "acme/site"]),
            (true, printed.to_owned(), String::new()),
            "{command}"
        );
        assert_eq!(state().await, expected, "{command}");
    }
    let audited = database.rows("SELECT event, actor_id, data FROM store.audit ORDER BY id").await;
    let data = json!({ "org": "acme", "project": "site" });
    let event = |name: &str| json!({ "event": name, "actor_id": null, "data": data });
    assert_eq!(audited, [event("placement.suspend"), event("placement.resume")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_projects_are_listed_by_their_current_names() {
    let database = TestDatabase::create().await;
    database.run(PROJECTS).await;
    let list = || {
        let (succeeded, printed, error) = placement(&database, &["list"]);
        assert!(succeeded && error.is_empty(), "{error}");
        let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        printed.lines().skip(1).map(cells).collect::<Vec<_>>()
    };
    assert!(list().is_empty());
    assert!(placement(&database, &["suspend", "acme/site"]).0);
    // Another project gets the name of the suspended one.
    database
        .run(
            "UPDATE projects.projects SET name = 'renamed' WHERE name = 'site'; \
             UPDATE projects.projects SET name = 'site' WHERE name = 'blog'",
        )
        .await;
    let listed = list();
    let audited = database.rows("SELECT target FROM store.audit").await;
    assert_eq!(listed, [["acme/renamed", audited[0]["target"].as_str().unwrap(), "edge"]]);
    // The placement of the project has no home node after the node is revoked.
    database.run("UPDATE convergence.placements SET node_id = NULL WHERE state = 'suspended'").await;
    assert_eq!(list()[0][2], "-");
    assert_eq!(placement(&database, &["resume", "acme/renamed"]).1, "resumed\n");
    assert!(list().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_unplaced_and_busy_projects_are_refused() {
    let database = TestDatabase::create().await;
    database.run(PROJECTS).await;
    for (project, message) in [
        ("acme/nothing", "the organization acme has no project nothing"),
        ("other/site", "the organization other has no project site"),
        ("acme/gone", "the organization acme has no project gone"),
        ("site", "must be <org>/<project>"),
        ("/site", "must be <org>/<project>"),
        ("acme/", "must be <org>/<project>"),
        ("acme/blog", "placement"),
        ("acme/busy", "operation"),
    ] {
        let (succeeded, printed, error) = placement(&database, &["suspend", project]);
        assert!(!succeeded && printed.is_empty() && error.contains(message), "{project}: {printed}{error}");
    }
    assert_eq!(database.number("SELECT count(*) FROM store.audit").await, 0);
    assert_eq!(database.number("SELECT count(*) FROM convergence.placements WHERE state = 'suspended'").await, 0);
}

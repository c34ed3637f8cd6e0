//! The saved state of a killed node, which can be older than the last state that it applied.

use std::fs;
use std::path::{Path, PathBuf};

use super::kit::{Kit, PASSWORD, eventually};

/// Returns the saved environments by file.
fn saved(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let mut files: Vec<_> = files.filter_map(|path| Some((path.clone(), fs::read(path).ok()?))).collect();
    files.sort();
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn older_saved_state_opens_nothing() {
    let Some(mut kit) = Kit::start().await else { return };
    let folder = kit.dir.path().join("environments");
    for project in ["prj_a", "prj_b", "prj_c"] {
        // The node saves only the state of projects with a site.
        kit.core.deploy(project, &[("index.html", b"x")]);
        kit.enable(project).await;
    }
    let (kept, revoked) = (kit.add_token("prj_a", None), kit.add_token("prj_a", None));
    kit.applied("prj_a").await;
    // Wait until the saved files no longer change, which means that the node has saved its last state.
    let (mut old, mut repeated) = (saved(&folder), 0);
    eventually("the saved state", async || {
        let previous = std::mem::replace(&mut old, saved(&folder));
        repeated = if previous == old { repeated + 1 } else { 0 };
        old.len() == 3 && repeated > 20
    })
    .await;
    // These changes are applied, but are not in the old state: a revocation, a new token, a password, and a suspension.
    kit.change("prj_a", |desired| desired.tokens.retain(|login| login.user != revoked));
    let later = kit.add_token("prj_a", None);
    kit.change("prj_b", |desired| desired.suspended = true);
    kit.change("prj_c", |desired| desired.verifier = Some(super::kit::verifier("another")));
    kit.applied("prj_a").await;
    kit.applied("prj_c").await;
    let revision = kit.desired("prj_b").revision;
    kit.reported("prj_b", "the suspension", |report| !report.ready && report.revision == revision).await;

    kit.node.kill();
    kit.core.stop().await;
    fs::remove_dir_all(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    for (file, content) in &old {
        fs::write(file, content).unwrap();
    }
    let admin = kit.superuser("svc_node").await;
    let passwords = "SELECT string_agg(rolpassword, ',' ORDER BY rolname) FROM pg_authid WHERE rolname ~ '^dump_'";
    let own = async || admin.query_one(passwords, &[]).await.unwrap().get::<_, String>(0);
    let before = own().await;
    let before: Vec<&str> = before.split(',').collect();
    kit.restart_node_after_kill();
    // The suspended database keeps the login of backups.
    eventually("the start", async || own().await.split(',').zip(&before).all(|(now, before)| now != *before)).await;
    let database = kit.name("prj_a");
    for (user, password, database, is_admitted) in [
        (kit.app("prj_a"), PASSWORD, database.clone(), true),
        (kept, PASSWORD, database.clone(), true),
        (revoked, PASSWORD, database.clone(), false),
        // The new token may have been revoked since.
        (later.clone(), PASSWORD, database.clone(), false),
        (kit.app("prj_b"), PASSWORD, kit.name("prj_b"), false),
        (kit.app("prj_c"), PASSWORD, kit.name("prj_c"), false),
        (kit.app("prj_c"), "another", kit.name("prj_c"), true),
    ] {
        let admitted = kit.log_in(&user, password, &database).await.is_ok();
        assert_eq!(admitted, is_admitted, "{user} {password}");
    }
    kit.core.restart().await;
    kit.change("prj_a", |_| ());
    kit.applied("prj_a").await;
    kit.log_in(&later, PASSWORD, &database).await.unwrap();
}

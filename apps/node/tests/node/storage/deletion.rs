//! Deletion of the objects of purged projects.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use chaos::NetworkFault;
use futures_util::future::join_all;
use node::storage::PutOptions;
use protocol::{DeletedStorage, DeletedStorageReport, Report};
use redb::{Database, ReadableDatabase as _, ReadableTableMetadata as _, TableDefinition};
use serde_json::json;

use super::{Kind, Observation, Rig, TestStore, grant, key, noise, on_each_store};
use crate::control_plane::ControlPlane;
use crate::running::{Dir, environment, until};

impl Rig {
    /// Receives a full state of the control plane that lists these projects as purged.
    fn set_purged(&self, projects: &[&str]) {
        let deleted = |project: &&str| {
            let part = DeletedStorage { prefix: format!("sto_{project}") };
            ((*project).to_owned(), Some(part))
        };
        let changes: Vec<_> = projects.iter().map(deleted).collect();
        self.deleted.send_modify(|prefixes| prefixes.apply(true, &changes));
    }

    /// Waits until the node reports that a project has no objects any more.
    async fn wait_for_deletion(&mut self, project: &str) {
        let report = DeletedStorageReport { prefix: format!("sto_{project}") };
        let expected = Report::new(project.to_owned(), &report).unwrap();
        let reported = async {
            while let Some(Observation { report, .. }) = self.reports.recv().await {
                if report == expected {
                    break;
                }
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(30), reported).await.is_ok(), "no report about {project}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_purged_project_are_deleted_and_no_others() {
    on_each_store(async |mut rig| {
        let (purged, kept) = (grant("purged"), grant("purged2"));
        for number in 0..30 {
            rig.put(&purged, &number.to_string(), "content").await;
        }
        rig.put(&purged, "large", noise(6 << 20)).await;
        rig.put(&kept, "key", "content").await;
        // This node did not write this file.
        fs::write(rig.store.folder("sto_purged").join("unrelated"), "").unwrap();
        // A full state without the project, such as that of a restored control plane, deletes nothing.
        rig.set_purged(&[]);
        rig.set_purged(&["purged"]);
        rig.wait_for_deletion("purged").await;
        rig.wait_for_blobs(1).await;
        assert!(!rig.store.folder("sto_purged").join("owner").exists());
        assert_eq!(rig.get(&kept, "key").await.unwrap(), b"content");
        // The report is repeated with each full state, in case it was lost.
        rig.set_purged(&["purged"]);
        rig.wait_for_deletion("purged").await;
        // The index has no rows of the purged prefix.
        rig.set_purged(&[]);
        assert_eq!(rig.keys(&purged).await, [""; 0]);
        rig.wait_for_report("purged", 0, false).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_deletion_continues_after_a_start() {
    on_each_store(async |rig| {
        let purged = grant("purged");
        for batch in 0..24 {
            join_all((0..50).map(|number| rig.put_owned(&purged, format!("{batch}/{number}")))).await;
        }
        rig.put(&grant("kept"), "key", "content").await;
        rig.set_purged(&["purged"]);
        // The node stops at some point of the deletion.
        tokio::task::yield_now().await;
        let mut rig = rig.restart().await;
        rig.set_purged(&["purged"]);
        rig.wait_for_deletion("purged").await;
        rig.wait_for_blobs(1).await;
        // The index contains only the object of the other project.
        let (_store, dir) = rig.stop().await;
        let index = Database::open(dir.path().join("storage.redb")).unwrap();
        let objects = TableDefinition::<&[u8], &[u8]>::new("objects");
        assert_eq!(index.begin_read().unwrap().open_table(objects).unwrap().len().unwrap(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn project_of_a_restored_control_plane_keeps_the_objects_that_are_left() {
    let rig = Rig::start(TestStore::start(Kind::S3).await);
    let one = grant("one");
    rig.put(&one, "key", "content").await;
    rig.store.proxy().set_fault(NetworkFault::Disconnect);
    rig.set_purged(&["one"]);
    // The rows of the index are removed before the first request to the store, which fails.
    let is_unprepared = async || rig.storage.head(&one, key("key")).await.is_err();
    while !is_unprepared().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    rig.set_purged(&[]);
    rig.store.proxy().set_fault(NetworkFault::None);
    assert_eq!(rig.get(&one, "key").await.unwrap(), b"content");
    rig.put_with(&one, "other", "x", PutOptions::default()).await.unwrap();
    rig.wait_for_blobs(2).await;
}

/// A node process with this store, until it is dropped.
struct NodeProcess(Child);

impl NodeProcess {
    fn start(core: &ControlPlane, dir: &Dir, store: &TestStore) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc-node"));
        command.env_clear().envs(environment(core, dir)).envs(store.settings()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_is_killed_during_a_deletion_continues_it() {
    let (core, dir, store) = (ControlPlane::start().await, Dir::new(), TestStore::start(Kind::S3).await);
    let folder = store.folder("sto_gone");
    fs::create_dir_all(&folder).unwrap();
    for number in 0..500 {
        fs::write(folder.join(format!("{number}")), "content").unwrap();
    }
    let left = || store.blobs().len();
    // The deletion is slow enough for a kill in between.
    store.proxy().set_fault(NetworkFault::Delay(Duration::from_millis(100)));
    // The project was purged while the node was offline.
    core.set_part("gone", "deletedStorage", json!({ "prefix": "sto_gone" }));
    let node = NodeProcess::start(&core, &dir, &store);
    until("the beginning of the deletion", || left() < 500).await;
    drop(node);
    assert!(left() > 0 && core.last_report_of("gone", "deletedStorage").is_none());
    store.proxy().set_fault(NetworkFault::None);
    let _node = NodeProcess::start(&core, &dir, &store);
    until("the report", || core.last_report_of("gone", "deletedStorage").is_some()).await;
    assert_eq!((left(), core.last_report_of("gone", "deletedStorage")), (0, Some(json!({ "prefix": "sto_gone" }))));
}

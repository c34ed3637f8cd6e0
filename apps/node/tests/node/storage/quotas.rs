//! Quotas and reports.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use node::storage::PutOptions;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Grant, code, fixed, grant_with, key, on_each_store};
use crate::control_plane::{ControlPlane, TOKEN};
use crate::running::{RunningNode, config_with, until};
use crate::timeout::TIMEOUT;

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_exact_and_refusals_are_reported_once() {
    on_each_store(async |mut rig| {
        let grant = grant_with("one", 10);
        rig.put(&grant, "a", "1234").await;
        rig.put(&grant, "b", "123456").await;
        rig.wait_for_report("one", 10, false).await;
        assert_eq!(code(rig.put_with(&grant, "c", "1", PutOptions::default()).await), "quota_exceeded");
        rig.wait_for_report("one", 10, true).await;
        // A second refusal does not count as another crossing of the quota, even after a restart.
        assert_eq!(code(rig.put_with(&grant, "c", "1", PutOptions::default()).await), "quota_exceeded");
        let mut rig = rig.restart().await;
        rig.wait_for_report("one", 10, true).await;
        // Two objects do not exceed the quota: one without content, and one that replaces a larger object.
        rig.put(&grant, "empty", "").await;
        rig.put(&grant, "b", "12345").await;
        rig.wait_for_report("one", 9, false).await;
        rig.put(&grant, "a", "12345").await;
        rig.wait_for_report("one", 10, false).await;
        assert_eq!(code(rig.put_with(&grant, "c", "1", PutOptions::default()).await), "quota_exceeded");
        rig.wait_for_report("one", 10, true).await;
        // A larger quota ends the refusal, without a put.
        let larger = grant_with("one", 20);
        rig.storage.head(&larger, key("a")).await.unwrap();
        rig.wait_for_report("one", 10, false).await;
        rig.put(&larger, "c", "1").await;
        rig.delete(&larger, &["a", "b", "c", "empty", "never"]).await;
        rig.wait_for_report("one", 0, false).await;
        // A smaller quota deletes nothing and allows smaller objects.
        rig.put(&larger, "a", "123456789012").await;
        rig.put(&grant, "a", "12345678901").await;
        assert_eq!(rig.get(&grant, "a").await.unwrap(), b"12345678901");
        assert_eq!(code(rig.put_with(&grant, "b", "1", PutOptions::default()).await), "quota_exceeded");

        // An object that is larger than the whole quota is reported even if the storage is empty, but not as its lasting
        // state: the refusal in a full storage is reported again.
        let grant = grant_with("two", 10);
        assert_eq!(code(rig.put_with(&grant, "a", "12345678901", PutOptions::default()).await), "quota_exceeded");
        rig.wait_for_report("two", 0, true).await;
        rig.put(&grant, "a", "1234567890").await;
        rig.wait_for_report("two", 10, false).await;
        assert_eq!(code(rig.put_with(&grant, "b", "1", PutOptions::default()).await), "quota_exceeded");
        rig.wait_for_report("two", 10, true).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_control_plane_receives_the_usage_again() {
    let mut rig = super::Rig::start(super::TestStore::start(super::Kind::Folder).await);
    rig.put(&grant_with("one", 10), "a", "1234").await;
    rig.wait_for_report("one", 4, false).await;
    let (store, dir) = rig.stop().await;
    let core = ControlPlane::start().await;
    core.deploy("site", &[("assets/index.html", b"page")]);
    let interval = ("SVC_NODE_STORAGE_REPORT_INTERVAL".to_owned(), "1s".to_owned());
    let node = RunningNode::start_as(&config_with(&core, &dir, store.settings().into_iter().chain([interval]))).await;
    let reports = || core.reports_of("one", "storage");
    until("the report after the start", || reports().len() == 1).await;
    core.restore_backup();
    until("the report after the restore", || reports().len() == 2).await;
    // The first response after another restore is a full state.
    core.deploy("site", &[("assets/index.html", b"second")]);
    node.visitor.sees("site.localhost", "/", 200, "second").await;
    core.reject_until_relist().await;
    core.restore_backup();
    core.accept(TOKEN);
    until("the report after the second restore", || reports().len() == 3).await;
    let expected = json!({ "usedBytes": 4, "quotaExceeded": false });
    assert!(reports().iter().all(|report| *report == expected));
    node.stop().await;
}

/// Puts an endless stream of 64 KiB chunks. Returns the error code, and the number of bytes that were read before the
/// put failed.
async fn put_endless(rig: &super::Rig, grant: &Grant, length: Option<u64>) -> (&'static str, usize) {
    let read = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = read.clone();
    let chunks = stream::repeat_with(move || {
        counted.fetch_add(64 << 10, std::sync::atomic::Ordering::Relaxed);
        Ok::<Bytes, Infallible>(vec![0; 64 << 10].into())
    });
    let options = PutOptions { length, ..PutOptions::default() };
    let refused = rig.storage.put(fixed(grant), key("endless"), options, chunks).await;
    (code(refused), read.load(std::sync::atomic::Ordering::Relaxed))
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_objects_are_refused_before_their_end() {
    on_each_store(async |mut rig| {
        let grant = grant_with("one", 1 << 20);
        assert_eq!(put_endless(&rig, &grant, Some((1 << 20) + 1)).await, ("quota_exceeded", 0));
        rig.wait_for_report("one", 0, true).await;
        let (refused, read) = put_endless(&rig, &grant, None).await;
        assert!(refused == "quota_exceeded" && read <= 2 << 20, "{refused} after {read} bytes");
        rig.wait_for_blobs(0).await;
        assert_eq!(rig.keys(&grant).await, [""; 0]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_streams_do_not_exceed_the_quota_together() {
    on_each_store(async |mut rig| {
        let grant = grant_with("one", 1000);
        let puts = (0..20).map(|number| {
            let content = stream::iter([Ok::<Bytes, Infallible>(vec![0; 150].into())]).then(async |chunk| {
                tokio::time::sleep(Duration::from_millis(200)).await;
                chunk
            });
            let (storage, grant) = (rig.storage.clone(), grant.clone());
            async move {
                storage.put(fixed(&grant), key(&number.to_string()), PutOptions::default(), Box::pin(content)).await
            }
        });
        let results = join_all(puts).await;
        let (stored, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!(stored.len(), 6);
        assert!(refused.into_iter().all(|refused| code(refused) == "quota_exceeded"));
        rig.wait_for_report("one", 900, true).await;
        assert_eq!(rig.keys(&grant).await.len(), 6);
        rig.wait_for_blobs(6).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn number_of_objects_is_limited() {
    let mut rig = super::Rig::start(super::TestStore::start(super::Kind::Folder).await);
    let grant = grant_with("one", 0);
    for batch in 0..20 {
        join_all((0..50).map(|number| rig.put_owned(&grant, format!("{batch}/{number}")))).await;
    }
    assert_eq!(code(rig.put_with(&grant, "one more", "", PutOptions::default()).await), "quota_exceeded");
    rig.wait_for_report("one", 0, true).await;
    rig.delete(&grant, &["0/0"]).await;
    rig.put(&grant, "one more", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_that_are_replaced_but_not_deleted_are_limited() {
    on_each_store(async |mut rig| {
        const SIZE: usize = 15 << 20;
        let grant = grant_with("one", SIZE as u64);
        // The blobs of replaced objects are kept while they are read. They may exceed the quota by 64 MiB, which five
        // blobs fill.
        let mut reads = Vec::new();
        for _ in 0..5 {
            rig.put(&grant, "key", vec![0; SIZE]).await;
            reads.push(rig.storage.get(&grant, key("key"), None).await.unwrap().unwrap());
        }
        rig.wait_for_blobs(5).await;
        let refused = rig.put_with(&grant, "key", vec![0; SIZE], PutOptions::default()).await;
        assert!(refused.as_ref().is_err_and(|error| error.to_string().contains("replaced")), "{refused:?}");
        assert_eq!(code(refused), "quota_exceeded");
        // Other projects may store, and the user need not delete anything.
        rig.put(&grant_with("other", SIZE as u64), "key", vec![0; SIZE]).await;
        rig.wait_for_report("one", SIZE as u64, false).await;
        drop(reads);
        rig.wait_for_blobs(2).await;
        let put = || rig.put_with(&grant, "key", vec![0; SIZE], PutOptions::default());
        let stored = async { while put().await.is_err() {} };
        assert_eq!(tokio::time::timeout(TIMEOUT, stored).await, Ok(()));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_in_flight_are_limited() {
    let rig = super::Rig::start(super::TestStore::start(super::Kind::Folder).await);
    let grant = grant_with("one", 1 << 20);
    let options = || PutOptions { length: Some(1 << 20), ..PutOptions::default() };
    let mut stalled = JoinSet::new();
    for number in 0..65 {
        let content = Box::pin(stream::pending::<Result<Bytes, Infallible>>());
        let (storage, one) = (rig.storage.clone(), grant.clone());
        stalled.spawn(async move { storage.put(fixed(&one), key(&number.to_string()), options(), content).await });
    }
    let put = || rig.put_with(&grant, "key", "", options());
    let refused = async {
        loop {
            if let Err(error) = put().await {
                return error.code();
            }
        }
    };
    assert_eq!(tokio::time::timeout(TIMEOUT, refused).await, Ok("quota_exceeded"));
    stalled.shutdown().await;
    let stored = async { while put().await.is_err() {} };
    assert_eq!(tokio::time::timeout(TIMEOUT, stored).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_objects_in_flight_count_as_a_kib() {
    let rig = super::Rig::start(super::TestStore::start(super::Kind::Folder).await);
    let grant = grant_with("one", 1 << 20);
    // The other puts leave 1 KiB of the limit of 65 MiB to the two of an empty object.
    let lengths = [vec![1 << 20; 64], vec![(1 << 20) - 1024, 0, 0]].concat();
    let (began, mut begun) = mpsc::unbounded_channel();
    let mut stalled = JoinSet::new();
    for (number, length) in lengths.iter().enumerate() {
        let (storage, one, began) = (rig.storage.clone(), grant.clone(), began.clone());
        let content = Box::pin(stream::once(async move {
            began.send(()).unwrap();
            pending::<Result<Bytes, Infallible>>().await
        }));
        let options = PutOptions { length: Some(*length), ..PutOptions::default() };
        stalled.spawn(async move { storage.put(fixed(&one), key(&number.to_string()), options, content).await });
    }
    for _ in &lengths {
        assert_eq!(tokio::time::timeout(TIMEOUT, begun.recv()).await, Ok(Some(())));
    }
    assert_eq!(code(rig.put_with(&grant, "key", "", PutOptions::default()).await), "quota_exceeded");
    stalled.shutdown().await;
    let stored = async { while rig.put_with(&grant, "key", "", PutOptions::default()).await.is_err() {} };
    assert_eq!(tokio::time::timeout(TIMEOUT, stored).await, Ok(()));
}

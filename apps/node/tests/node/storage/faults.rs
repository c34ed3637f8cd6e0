//! A store that is slow, down or refuses.

use std::time::{Duration, Instant};

use chaos::NetworkFault;
use node::storage::{Grant, ListOptions, Page, PutOptions, Result};
use objects::{S3Config, StoreConfig};
use settings::Secret;
use tokio::time::timeout;

use super::{Kind, Rig, TestStore, code, grant, key, noise};

/// No operation takes longer than this.
const LIMIT: Duration = Duration::from_secs(30);

async fn list(rig: &Rig, grant: &Grant) -> Result<Page> {
    let mut call = rig.storage.begin_bulk_call(grant).await?;
    rig.storage.list(&mut call, grant, ListOptions::default()).await
}

async fn delete(rig: &Rig, grant: &Grant) -> Result<()> {
    let mut call = rig.storage.begin_bulk_call(grant).await?;
    rig.storage.delete(&mut call, grant, vec![key("key")]).await
}

/// Asserts that all operations that need the content of objects fail with the expected code in time.
async fn assert_unavailable(rig: &Rig, new: &Grant) {
    let one = grant("one");
    let began = Instant::now();
    let operations = async {
        tokio::join!(
            rig.put_with(&one, "small", "x", PutOptions::default()),
            rig.put_with(&one, "large", noise(12 << 20), PutOptions::default()),
            rig.get_range(&one, "key", None),
            rig.get_range(&one, "large key", None),
            // The first use of a project also needs the store.
            rig.storage.head(new, key("key")),
            list(rig, new),
            delete(rig, new),
        )
    };
    let (small, large, get, get_large, head, list, delete) = timeout(LIMIT, operations).await.unwrap();
    println!("failed after {:?}", began.elapsed());
    let codes = [code(small), code(large), code(get), code(get_large), code(head), code(list), code(delete)];
    assert_eq!(codes, ["storage_unavailable"; 7]);
    // The keys are in the index, so a listing needs no store.
    assert_eq!(rig.keys(&one).await, ["key", "large key"]);
}

/// Asserts that a call waits for a permit of its project and for the store within one common time limit.
async fn assert_queued_call_ends(rig: &Rig, grant: &Grant) {
    let mut calls = Vec::new();
    for _ in 0..8 {
        calls.push(rig.storage.begin_bulk_call(grant).await.unwrap());
    }
    let release = async {
        tokio::time::sleep(Duration::from_secs(12)).await;
        drop(calls);
    };
    let (listed, ()) = timeout(LIMIT, async { tokio::join!(list(rig, grant), release) }).await.unwrap();
    assert_eq!(code(listed), "storage_unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_s3_have_a_code_and_end() {
    let rig = Rig::start(TestStore::start(Kind::S3).await);
    let one = grant("one");
    rig.put(&one, "key", "content").await;
    rig.put(&one, "large key", noise(6 << 20)).await;
    for fault in [NetworkFault::Disconnect, NetworkFault::Blackhole] {
        let new = grant(&format!("new{fault:?}"));
        rig.store.proxy().set_fault(fault);
        if matches!(fault, NetworkFault::Blackhole) {
            let queued = grant("queued");
            tokio::join!(assert_unavailable(&rig, &new), assert_queued_call_ends(&rig, &queued));
        } else {
            assert_unavailable(&rig, &new).await;
        }
        rig.store.proxy().set_fault(NetworkFault::None);
        assert_eq!(rig.get(&one, "key").await.unwrap(), b"content");
        rig.put(&one, "after", "x").await;
        rig.delete(&one, &["after"]).await;
        assert_eq!(rig.storage.head(&new, key("key")).await.unwrap(), None);
        // The blobs of the failed puts are deleted in the end.
        rig.wait_for_blobs(2).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_store_only_takes_longer() {
    let rig = Rig::start(TestStore::start(Kind::S3).await);
    // The proxy delays every few KiB.
    rig.store.proxy().set_fault(NetworkFault::Delay(Duration::from_millis(20)));
    let (one, content) = (grant("one"), noise(1 << 20));
    rig.put(&one, "key", content.clone()).await;
    assert!(rig.get(&one, "key").await.unwrap() == content);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_credentials_are_an_error_without_the_secret() {
    let store = TestStore::start(Kind::S3).await;
    let StoreConfig::S3(s3) = store.config() else { panic!("not a bucket") };
    let wrong = S3Config { secret_access_key: Secret::new("guess".to_owned()), ..s3 };
    let rig = Rig::start(store);
    let (dir, (observer, _reports)) = (super::Dir::new(), tokio::sync::mpsc::unbounded_channel());
    let config = node::storage::config::StorageConfig {
        store: StoreConfig::S3(wrong),
        report_interval: LIMIT,
        receiver_timeout: LIMIT,
        sweep_delays: &[],
    };
    assert!(!format!("{config:?}").contains("guess"));
    let metrics = node::storage::StorageMetrics::new(&prometheus::Registry::new()).unwrap();
    let observer = node::observe::Observer::new(observer);
    let mut tasks = tokio::task::JoinSet::new();
    let deleted = tokio::sync::watch::Sender::default().subscribe();
    let storage = node::storage::Storage::open(&config, dir.path(), observer, metrics, deleted, &mut tasks).unwrap();
    assert_eq!(code(storage.head(&grant("one"), key("key")).await), "storage_unavailable");
    rig.put(&grant("one"), "key", "content").await;
}

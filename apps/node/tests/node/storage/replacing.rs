//! Reads while objects are replaced and deleted.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use node::storage::PutOptions;

use super::{Kind, Result, Rig, TestStore, code, fixed, grant, key, noise, on_each_store};

#[tokio::test(flavor = "multi_thread")]
async fn reads_are_never_torn() {
    on_each_store(async |rig| {
        let one = grant("one");
        let content = |byte: u8| Bytes::from(vec![byte; 600 << 10]);
        rig.put(&one, "key", content(0)).await;
        let is_done = AtomicBool::new(false);
        let write = async {
            for byte in 1..40 {
                let chunks = stream::iter([content(byte)]).map(Ok::<Bytes, Infallible>);
                rig.storage.put(fixed(&one), key("key"), PutOptions::default(), chunks).await.unwrap().unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
        };
        let read = async || {
            let mut last = 0;
            while !is_done.load(Ordering::Relaxed) {
                let read = rig.get(&one, "key").await.unwrap();
                assert_eq!(read.len(), 600 << 10);
                assert!(read.iter().all(|byte| *byte == read[0]), "torn");
                assert!(read[0] >= last, "a read after a newer one");
                last = read[0];
            }
        };
        tokio::join!(write, read(), read(), read());
        rig.wait_for_blobs(1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn get_without_a_receiver_ends() {
    for kind in [Kind::Folder, Kind::S3] {
        let rig = Rig::start_with_timeout(TestStore::start(kind).await, Duration::from_secs(5));
        let one = grant("one");
        let content = noise(12 << 20);
        rig.put(&one, "key", content.clone()).await;
        let (_, mut stalled) = rig.storage.get(&one, key("key"), None).await.unwrap().unwrap();
        stalled.bytes.try_next().await.unwrap().unwrap();
        // A receiver that reads within the timeout gets the whole content.
        assert!(rig.get(&one, "key").await.unwrap() == content);
        rig.put(&one, "other", "x").await;
        rig.delete(&one, &["key"]).await;
        // The store still contains the blobs of the deleted and of the other object.
        let deleted = async {
            while rig.store.blobs().len() > 1 {
                rig.put(&one, "other", "x").await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), deleted).await.unwrap();
        let rest: Result<Vec<Bytes>> = stalled.bytes.try_collect().await;
        assert_eq!(code(rest.map(|chunks| chunks.len())), "storage_unavailable");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn read_in_progress_survives_a_delete() {
    on_each_store(async |rig| {
        let one = grant("one");
        let content = noise(12 << 20);
        rig.put(&one, "key", content.clone()).await;
        let (_, mut read) = rig.storage.get(&one, key("key"), None).await.unwrap().unwrap();
        let first = read.bytes.try_next().await.unwrap().unwrap();
        rig.delete(&one, &["key"]).await;
        assert_eq!(rig.get(&one, "key").await, None);
        // The deletion of other blobs does not wait for this read.
        rig.put(&one, "other", "1").await;
        rig.put(&one, "other", "2").await;
        rig.wait_for_blobs(2).await;
        let rest: Vec<Bytes> = read.bytes.try_collect().await.unwrap();
        assert!([&[first], &*rest].concat().concat() == content);
        rig.put(&one, "other", "3").await;
        rig.wait_for_blobs(1).await;
    })
    .await;
}

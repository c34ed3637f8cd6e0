//! Puts that do not reach their end.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use node::storage::PutOptions;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{Kind, Rig, TestStore, code, fixed, grant, key, noise, on_each_store};

#[tokio::test(flavor = "multi_thread")]
async fn failed_and_cancelled_puts_store_nothing() {
    on_each_store(async |mut rig| {
        let one = grant("one");
        rig.put(&one, "key", "before").await;
        // Shorter than a part, and longer than two.
        for size in [10, 12 << 20] {
            let begin = || stream::iter([Ok(Bytes::from(noise(size)))]);
            let failing = begin().chain(stream::iter([Err(io::Error::other("the stream failed"))]));
            let failed = rig.storage.put(fixed(&one), key("key"), PutOptions::default(), failing).await;
            assert_eq!(code(failed), "storage_unavailable");
            let stalled = Box::pin(begin().chain(stream::pending::<io::Result<Bytes>>()));
            let put = rig.storage.put(fixed(&one), key("key"), PutOptions::default(), stalled);
            assert!(tokio::time::timeout(Duration::from_secs(1), put).await.is_err());
            assert_eq!(rig.get(&one, "key").await.unwrap(), b"before");
            rig.wait_for_blobs(1).await;
        }
        rig.wait_for_report("one", 6, false).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_puts_of_a_project_do_not_block_others() {
    let rig = Rig::start(TestStore::start(Kind::Folder).await);
    let mut stalled = JoinSet::new();
    for number in 0..100 {
        let begin = stream::iter([Ok(Bytes::from(noise(300 << 10)))]);
        let content = Box::pin(begin.chain(stream::pending::<io::Result<Bytes>>()));
        let (storage, one) = (rig.storage.clone(), grant("one"));
        stalled.spawn(async move {
            storage.put(fixed(&one), key(&number.to_string()), PutOptions::default(), content).await
        });
    }
    // The eight puts with a permit have sent their first part.
    rig.wait_for_blobs(8).await;
    rig.put(&grant("other"), "large", noise(1 << 20)).await;
    // Small objects of the same project need no permit.
    rig.put(&grant("one"), "small", "x").await;
    stalled.shutdown().await;
    rig.wait_for_blobs(2).await;
    rig.put(&grant("one"), "large", noise(1 << 20)).await;
}

/// A killed process can leave a blob that was not committed, and a part of one.
#[tokio::test(flavor = "multi_thread")]
async fn blobs_without_an_object_are_removed_after_a_start() {
    on_each_store(async |rig| {
        let one = grant("one");
        rig.put(&one, "key", "content").await;
        let folder = rig.store.folder("sto_one");
        let blobs = || std::fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
        let committed: Uuid = blobs().find_map(|name| Uuid::try_parse(&name).ok()).unwrap();
        // A blob that was begun after the last commit.
        let orphan = Uuid::from_u128(committed.as_u128() + (1 << 70));
        std::fs::copy(folder.join(committed.to_string()), folder.join(orphan.to_string())).unwrap();
        std::fs::write(folder.join("unrelated"), "not a blob").unwrap();
        let rig = rig.restart().await;
        rig.wait_for_blobs(2).await;
        assert!(!folder.join(orphan.to_string()).exists() && folder.join("unrelated").exists());
        assert_eq!(rig.get(&one, "key").await.unwrap(), b"content");
        // A start without puts before it does not look for blobs again: no process has begun one.
        std::fs::copy(folder.join(committed.to_string()), folder.join(orphan.to_string())).unwrap();
        let rig = rig.restart().await;
        assert_eq!(rig.get(&one, "key").await.unwrap(), b"content");
        assert!(folder.join(orphan.to_string()).exists());
    })
    .await;
}

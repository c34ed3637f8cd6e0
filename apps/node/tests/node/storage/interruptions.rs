//! Puts that do not reach their end.

use std::future::ready;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use node::storage::PutOptions;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{Kind, Rig, TestStore, code, fixed, grant, grant_of, key, noise, on_each_store};

#[tokio::test(flavor = "multi_thread")]
async fn failed_and_cancelled_puts_store_nothing() {
    on_each_store(async |mut rig| {
        let one = grant("one");
        rig.put(&one, "key", "before").await;
        // One content is shorter than a part, and one is longer than two parts.
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

/// The last request of a failed put can arrive at the store after the deletion of its blob.
#[tokio::test(flavor = "multi_thread")]
async fn blob_that_arrives_after_its_deletion_is_deleted_again() {
    let rig = Rig::start(TestStore::start(Kind::Folder).await);
    let one = grant("one");
    let (end, ended) = oneshot::channel::<()>();
    let begin = stream::iter([Ok::<_, io::Error>(Bytes::from(noise(300 << 10)))]);
    let content = Box::pin(begin.chain(stream::once(ended).filter_map(|_| ready(None))));
    let mut put = Box::pin(rig.storage.put(fixed(&one), key("key"), PutOptions::default(), content));
    tokio::select! {
        ended = &mut put => panic!("the put ended: {ended:?}"),
        () = rig.wait_for_blobs(1) => (),
    }
    // The end of the put fails, because its part is missing.
    let folder = rig.store.folder("sto_one");
    let part = rig.store.blobs().remove(0);
    let part = part.rsplit('/').next().unwrap();
    std::fs::remove_file(folder.join(part)).unwrap();
    end.send(()).unwrap();
    assert_eq!(code(put.await), "storage_unavailable");
    let blob = folder.join(part.get(..36).unwrap());
    assert!(Uuid::try_parse(blob.file_name().unwrap().to_str().unwrap()).is_ok(), "{part}");
    // The first deletion may still be in progress.
    loop {
        std::fs::write(&blob, "late").unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        if blob.exists() {
            break;
        }
    }
    rig.wait_for_blobs(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_puts_of_an_owner_do_not_block_others() {
    let rig = Rig::start(TestStore::start(Kind::Folder).await);
    let one = |number: usize| grant_of("usr_one", &format!("one{}", number % 50), 1 << 30);
    let mut stalled = JoinSet::new();
    for number in 0..100 {
        let begin = stream::iter([Ok(Bytes::from(noise(300 << 10)))]);
        let content = Box::pin(begin.chain(stream::pending::<io::Result<Bytes>>()));
        let (storage, one) = (rig.storage.clone(), one(number));
        stalled.spawn(async move {
            storage.put(fixed(&one), key(&number.to_string()), PutOptions::default(), content).await
        });
    }
    // The eight puts with a permit have sent their first part.
    rig.wait_for_blobs(8).await;
    rig.put(&grant("other"), "large", noise(1 << 20)).await;
    // Small objects of the same owner need no permit.
    rig.put(&one(0), "small", "x").await;
    stalled.shutdown().await;
    rig.wait_for_blobs(2).await;
    rig.put(&one(0), "large", noise(1 << 20)).await;
}

/// Tests the cleanup after a kill, which can leave a blob without an object, and a part of a blob.
#[tokio::test(flavor = "multi_thread")]
async fn blobs_without_an_object_are_removed_after_a_start() {
    on_each_store(async |rig| {
        let one = grant("one");
        rig.put(&one, "key", "content").await;
        let folder = rig.store.folder("sto_one");
        let blobs = || std::fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
        let committed: Uuid = blobs().find_map(|name| Uuid::try_parse(&name).ok()).unwrap();
        // This blob was begun after the last commit.
        let orphan = Uuid::from_u128(committed.as_u128() + (1 << 70));
        std::fs::copy(folder.join(committed.to_string()), folder.join(orphan.to_string())).unwrap();
        std::fs::write(folder.join("unrelated"), "not a blob").unwrap();
        let rig = rig.restart().await;
        rig.wait_for_blobs(2).await;
        assert!(!folder.join(orphan.to_string()).exists() && folder.join("unrelated").exists());
        assert_eq!(rig.get(&one, "key").await.unwrap(), b"content");
        // If no put began before the stop, the next start does not look for blobs, because no process can have left
        // one.
        std::fs::copy(folder.join(committed.to_string()), folder.join(orphan.to_string())).unwrap();
        let rig = rig.restart().await;
        assert_eq!(rig.get(&one, "key").await.unwrap(), b"content");
        assert!(folder.join(orphan.to_string()).exists());
    })
    .await;
}

/// The last requests of a killed process can arrive at the store after the first sweep.
#[tokio::test(flavor = "multi_thread")]
async fn blob_that_arrives_after_a_sweep_is_removed_by_a_later_one() {
    const FREQUENT: [Duration; 1000] = [Duration::from_millis(100); 1000];
    const INTERRUPTED: [Duration; 2] = [Duration::ZERO, Duration::from_secs(3600)];
    on_each_store(async |rig| {
        let one = grant("one");
        rig.put(&one, "key", "content").await;
        let folder = rig.store.folder("sto_one");
        let add_orphan = || {
            let names = std::fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
            let newest = names.filter_map(|name| Uuid::try_parse(&name).ok()).max().unwrap();
            let orphan = Uuid::from_u128(newest.as_u128() + (1 << 70));
            std::fs::copy(folder.join(newest.to_string()), folder.join(orphan.to_string())).unwrap();
        };
        add_orphan();
        let rig = rig.restart_with(&FREQUENT).await;
        rig.wait_for_blobs(1).await;
        add_orphan();
        rig.wait_for_blobs(1).await;
        // A start before the last sweep sweeps again.
        rig.put(&one, "other", "content").await;
        add_orphan();
        let rig = rig.restart_with(&INTERRUPTED).await;
        rig.wait_for_blobs(2).await;
        add_orphan();
        let rig = rig.restart().await;
        rig.wait_for_blobs(2).await;
        assert_eq!(rig.keys(&one).await, ["key", "other"]);
    })
    .await;
}

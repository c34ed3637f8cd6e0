//! Grants that change during a put.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use node::storage::{Grant, PutOptions};
use tokio::sync::oneshot;

use super::{Result, Rig, StoredObject, code, grant_with, key, noise, on_each_store};

/// Puts 400 KiB. Changes the grant after the content is sent, and before the end of the request is sent.
async fn put_with_change(rig: &Rig, before: &Grant, after: Option<Grant>) -> Result<Option<StoredObject>> {
    let current = Arc::new(Mutex::new(Some(before.clone())));
    let (sent, is_sent) = oneshot::channel();
    let (resume, resumed) = oneshot::channel();
    let last = stream::once(async move {
        sent.send(()).unwrap();
        resumed.await.unwrap()
    });
    let content = stream::iter([Ok::<Bytes, Infallible>(noise(400 << 10).into())]).chain(last);
    let grants = current.clone();
    let put =
        rig.storage.put(move || grants.lock().unwrap().clone(), key("key"), PutOptions::default(), Box::pin(content));
    let change = async {
        is_sent.await.unwrap();
        *current.lock().unwrap() = after;
        resume.send(Ok(Bytes::from_static(b"end"))).unwrap();
    };
    tokio::join!(put, change).0
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_uses_the_current_grant() {
    on_each_store(async |mut rig| {
        let before = grant_with("one", 1 << 20);
        let revoked = put_with_change(&rig, &before, None).await;
        assert_eq!(code(revoked), "not_granted");
        let other = put_with_change(&rig, &before, Some(grant_with("other", 1 << 20))).await;
        assert_eq!(code(other), "not_granted");
        rig.wait_for_blobs(0).await;
        let smaller = put_with_change(&rig, &before, Some(grant_with("one", 1 << 10))).await;
        assert_eq!(code(smaller), "quota_exceeded");
        rig.wait_for_report("one", 0, true).await;
        rig.wait_for_blobs(0).await;
        assert_eq!(rig.keys(&before).await, [""; 0]);
        let larger = put_with_change(&rig, &before, Some(grant_with("one", 1 << 30))).await;
        assert_eq!(larger.unwrap().unwrap().size, (400 << 10) + 3);
    })
    .await;
}

//! Conditional puts.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use node::storage::{Condition, PutOptions};
use uuid::Uuid;

use super::{fixed, grant, key, on_each_store};

fn only_if(condition: Condition) -> PutOptions {
    PutOptions { condition: Some(condition), ..PutOptions::default() }
}

fn etag(text: &str) -> Condition {
    Condition::Blob(Uuid::try_parse(text).ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn put_stores_only_if_the_condition_is_met() {
    on_each_store(async |rig| {
        let one = grant("one");
        let put = async |content: &'static str, condition| {
            rig.put_with(&one, "key", content, only_if(condition)).await.unwrap().map(|stored| stored.etag)
        };
        assert_eq!(put("early", Condition::Blob(None)).await, None);
        let first = put("first", Condition::Absent).await.unwrap();
        assert_eq!(put("again", Condition::Absent).await, None);
        let second = put("second", etag(&first)).await.unwrap();
        assert_eq!(put("stale", etag(&first)).await, None);
        assert_eq!(put("unknown", Condition::Blob(None)).await, None);
        assert_eq!(rig.get(&one, "key").await.unwrap(), b"second");
        rig.delete(&one, &["key"]).await;
        assert_eq!(put("deleted", etag(&second)).await, None);
        assert!(put("new", Condition::Absent).await.is_some());
        rig.wait_for_blobs(1).await;
    })
    .await;
}

/// Tests streams that all begin before the first one ends.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_concurrent_streams_wins() {
    on_each_store(async |rig| {
        let one = grant("one");
        let previous = rig.put(&one, "replaced", "previous").await;
        for (name, condition) in [("created", Condition::Absent), ("replaced", etag(&previous.etag))] {
            let puts = (0..20).map(|number| {
                let chunks = [format!("{number} "), format!("of {name}")].map(|it| Ok::<Bytes, Infallible>(it.into()));
                let content = stream::iter(chunks).then(async |chunk| {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    chunk
                });
                let (storage, one) = (rig.storage.clone(), one.clone());
                async move { storage.put(fixed(&one), key(name), only_if(condition), Box::pin(content)).await.unwrap() }
            });
            let stored: Vec<_> = join_all(puts).await;
            let winners: Vec<usize> = (0..20).filter(|number| stored[*number].is_some()).collect();
            assert_eq!(winners.len(), 1, "{name}: {winners:?}");
            let content = rig.get(&one, name).await.unwrap();
            assert_eq!(content, format!("{} of {name}", winners[0]).into_bytes());
        }
        // The blobs of the other streams are deleted.
        rig.wait_for_blobs(2).await;
    })
    .await;
}

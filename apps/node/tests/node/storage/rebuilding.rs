//! The index is rebuilt from the store.

use node::storage::{Attributes, PutOptions};

use super::{code, grant, grant_with, key, on_each_store};

#[tokio::test(flavor = "multi_thread")]
async fn lost_index_is_rebuilt_with_usage_and_attributes() {
    on_each_store(async |rig| {
        let grant = grant_with("one", 2000);
        let metadata = [("name".to_owned(), "é".repeat(1000))].into();
        let attributes = Attributes { content_type: Some("text/plain".to_owned()), metadata };
        // The header of this object is longer than the first read of a rebuild.
        let long = format!("é/\u{1}{}", "\u{2}".repeat(1000));
        let options = PutOptions { attributes, ..PutOptions::default() };
        let stored = rig.put_with(&grant, &long, "content", options).await.unwrap().unwrap();
        for number in 0..600 {
            rig.put(&grant, &format!("{number:03}"), "x").await;
        }
        rig.put(&grant, "000", "replaced").await;
        rig.delete(&grant, &["001"]).await;
        rig.wait_for_blobs(600).await;
        let (keys, etags) = (rig.keys(&grant).await, rig.storage.head(&grant, key("000")).await.unwrap());

        let (mut rig, _previous) = rig.replace_dir().await;
        // Another project of the store is not affected.
        assert_eq!(rig.keys(&super::grant("other")).await, [""; 0]);
        assert_eq!(rig.keys(&grant).await, keys);
        assert_eq!(rig.storage.head(&grant, key("000")).await.unwrap(), etags);
        assert_eq!(rig.storage.head(&grant, key(&long)).await.unwrap(), Some(stored));
        assert_eq!(rig.get(&grant, &long).await.unwrap(), b"content");
        rig.wait_for_report("one", 7 + 598 + 8, false).await;
        let too_large = vec![0; 2000 - 613 + 1];
        assert_eq!(code(rig.put_with(&grant, "large", too_large, PutOptions::default()).await), "quota_exceeded");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn project_that_moves_to_another_node_and_back_keeps_its_objects() {
    on_each_store(async |rig| {
        let one = grant("one");
        rig.put(&one, "kept", "first").await;
        rig.put(&one, "changed", "first").await;
        rig.put(&one, "deleted", "first").await;
        let (second, first_dir) = rig.replace_dir().await;
        second.put(&one, "changed", "second").await;
        second.put(&one, "added", "second").await;
        second.delete(&one, &["deleted"]).await;
        second.wait_for_blobs(3).await;
        // The first node still has its index, which is outdated.
        let (replaced, second_dir) = second.replace_dir().await;
        let back = super::Rig { dir: first_dir, ..replaced }.restart().await;
        assert_eq!(back.keys(&one).await, ["added", "changed", "kept"]);
        assert_eq!(back.get(&one, "changed").await.unwrap(), b"second");
        assert_eq!(back.get(&one, "kept").await.unwrap(), b"first");
        back.wait_for_blobs(3).await;
        drop(second_dir);
    })
    .await;
}

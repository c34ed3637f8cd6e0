//! Ranges, and contents of all sizes.

use node::storage::{Attributes, ContentRange, PutOptions};

use super::{grant, key, noise, on_each_store};

#[tokio::test(flavor = "multi_thread")]
async fn contents_of_all_sizes_are_read_whole_and_in_ranges() {
    on_each_store(async |rig| {
        let one = grant("one");
        // The parts of a folder have 256 KiB, those of S3 5 MiB.
        for size in [0, 1, 300 << 10, 6 << 20, 11 << 20] {
            let content = noise(size);
            let stored = rig.put(&one, "key", content.clone()).await;
            assert_eq!(stored.size, size as u64);
            assert!(rig.get(&one, "key").await.unwrap() == content, "{size}");
            let end = size as u64;
            let ranges =
                [(0, None), (0, Some(1)), (end / 2, Some(7)), (end / 2, None), (end, None), (end + 1, Some(1))];
            for (offset, length) in
                ranges.into_iter().chain([(0, Some(u64::MAX)), (u64::MAX, None), (end / 3, Some(0))])
            {
                let read = rig.get_range(&one, "key", Some(ContentRange { offset, length })).await.unwrap();
                let expected = (offset < end || offset == 0).then(|| {
                    let last = length.map_or(end, |length| end.min(offset.saturating_add(length)));
                    &content[usize::try_from(offset).unwrap()..usize::try_from(last).unwrap()]
                });
                assert!(read.as_deref() == expected, "{offset} {length:?} of {size}");
            }
        }
        // A ranged get returns the properties of the whole object.
        let range = Some(ContentRange { offset: 5, length: Some(3) });
        let (object, content) = rig.storage.get(&one, key("key"), range).await.unwrap().unwrap();
        assert_eq!((object.size, content.length), (11 << 20, 3));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_are_kept_and_change_with_each_put() {
    on_each_store(async |rig| {
        let one = grant("one");
        let attributes = Attributes {
            content_type: Some("text/plain; charset=utf-8".to_owned()),
            metadata: [("Name", "ü\"\\"), ("", "empty name")].map(|(n, v)| (n.to_owned(), v.to_owned())).into(),
        };
        let options = PutOptions { attributes: attributes.clone(), ..PutOptions::default() };
        let stored = rig.put_with(&one, "key", "one", options).await.unwrap().unwrap();
        assert_eq!(stored.attributes, attributes);
        assert_eq!(rig.storage.head(&one, key("key")).await.unwrap(), Some(stored.clone()));
        let again = rig.put(&one, "key", "one").await;
        assert_eq!(again.attributes, Attributes::default());
        assert!(again.etag != stored.etag && again.uploaded >= stored.uploaded);
    })
    .await;
}

//! Listings.

use node::storage::{ListOptions, Position, StorageError};

use super::{Rig, grant, on_each_store};

/// Returns the pages of a listing: objects and common prefixes of each.
async fn pages(rig: &Rig, prefix: &str, delimiter: &str, limit: usize) -> Vec<(Vec<String>, Vec<String>)> {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let options = ListOptions { prefix: prefix.to_owned(), delimiter: delimiter.to_owned(), limit, after };
        let page = rig.list(&grant("one"), options).await;
        pages.push((page.objects.into_iter().map(|object| object.key).collect(), page.prefixes));
        let Some(next) = page.next else { return pages };
        // A cursor is opaque text.
        after = Some(Position::decode(&next.encode()).unwrap());
    }
}

fn page(objects: &[&str], prefixes: &[&str]) -> (Vec<String>, Vec<String>) {
    let owned = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
    (owned(objects), owned(prefixes))
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_listed_by_prefix_delimiter_and_page() {
    on_each_store(async |rig| {
        for key in ["a", "a/1", "a/2", "a/b/1", "a0", "b", "é", "z", "Z", "a::x", "a::y", "a//", "%61"] {
            rig.put(&grant("one"), key, "x").await;
        }
        rig.put(&grant("other"), "a/3", "x").await;
        let all = ["%61", "Z", "a", "a//", "a/1", "a/2", "a/b/1", "a0", "a::x", "a::y", "b", "z", "é"];
        assert_eq!(pages(&rig, "", "", 1000).await, [page(&all, &[])]);
        assert_eq!(pages(&rig, "a/", "", 1000).await, [page(&["a//", "a/1", "a/2", "a/b/1"], &[])]);
        // A prefix is a plain string, not a folder.
        assert_eq!(pages(&rig, "a::", "", 1).await, [page(&["a::x"], &[]), page(&["a::y"], &[])]);
        assert_eq!(
            pages(&rig, "", "/", 1000).await,
            [page(&["%61", "Z", "a", "a0", "a::x", "a::y", "b", "z", "é"], &["a/"])]
        );
        assert_eq!(pages(&rig, "a/", "/", 1000).await, [page(&["a/1", "a/2"], &["a//", "a/b/"])]);
        // Pages contain objects and common prefixes in one order, and each common prefix once.
        assert_eq!(
            pages(&rig, "a", "/", 2).await,
            [page(&["a"], &["a/"]), page(&["a0", "a::x"], &[]), page(&["a::y"], &[])]
        );
        // Any string is a delimiter.
        assert_eq!(pages(&rig, "", "::", 4).await[2], page(&["b", "z", "é"], &["a::"]));
        assert_eq!(pages(&rig, "", "é", 1000).await[0].1, ["é"]);
        for nothing in ["nothing", "a/1/", "é\u{301}", &"x".repeat(5000)] {
            assert_eq!(pages(&rig, nothing, "/", 10).await, [page(&[], &[])]);
        }
        // A cursor of another listing neither panics nor reaches other keys.
        let foreign = Some(Position::decode(&Position::Object("zz".to_owned()).encode()).unwrap());
        let options = ListOptions { prefix: "a".to_owned(), limit: 5, after: foreign, ..ListOptions::default() };
        assert!(rig.list(&grant("one"), options).await.objects.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_is_limited_in_bytes() {
    let rig = Rig::start(super::TestStore::start(super::Kind::Folder).await);
    let one = grant("one");
    // JSON takes six bytes for each character of these keys.
    let keys: Vec<String> = (0..400).map(|number| format!("{}/{number:03}", "\u{1}".repeat(1000))).collect();
    for batch in keys.chunks(50) {
        futures_util::future::join_all(batch.iter().map(|key| rig.put_owned(&one, key.clone()))).await;
    }
    let pages = pages(&rig, "", "", 1000).await;
    let lengths: Vec<usize> = pages.iter().map(|page| page.0.len()).collect();
    assert!(lengths.len() == 3 && lengths.iter().all(|length| *length < 180), "{lengths:?}");
    assert_eq!(pages.into_iter().flat_map(|page| page.0).collect::<Vec<_>>(), keys);
}

#[test]
fn cursor_that_list_did_not_return_is_refused() {
    for cursor in ["", "!", "YQ", "b_8", "====", "é"] {
        assert!(matches!(Position::decode(cursor), Err(StorageError::InvalidArgument(_))), "{cursor}");
    }
}

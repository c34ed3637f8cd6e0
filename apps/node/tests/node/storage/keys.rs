//! Keys are exact bytes.

use std::collections::BTreeSet;

use super::{grant, on_each_store};

/// Returns keys that a store, a URL or a file system could confuse. All are distinct objects.
fn tricky() -> Vec<String> {
    let by_hand = [
        "a",
        "a/",
        "a//",
        "a/b",
        "a//b",
        "a///b",
        "/a",
        "//a",
        "/",
        "//",
        "A",
        "a ",
        " a",
        "a\n",
        "a\r\n",
        "\t",
        "a.",
        ".a",
        "...",
        "a/...",
        "a/.b",
        "..a",
        "a..",
        "a/..b",
        "%2e%2e",
        "%2E%2E",
        "%2e",
        "%2f",
        "%2F",
        "a%2fb",
        "a%2Fb",
        "a%00b",
        "%00",
        "%",
        "%%",
        "%25",
        "%252e",
        "a+b",
        "a b",
        "a%20b",
        "?",
        "a?b=c",
        "#",
        "#1",
        "a#1",
        "a#b",
        "&",
        "a\\b",
        "\\",
        "..\\a",
        "C:\\a",
        "C:",
        "~",
        "*",
        "|",
        "<>",
        "\"",
        "'",
        "`",
        "$HOME",
        "{}",
        "a;b",
        "a:b",
        "@",
        "=",
        "\u{1}",
        "\u{7f}",
        "\u{80}",
        "\u{feff}a",
        "a\u{200b}",
        "\u{202e}a",
        "é",
        "e\u{301}",
        "ﬁ",
        "fi",
        "ß",
        "ss",
        "K",
        "\u{212a}",
        "İ",
        "ı",
        "🦀",
        "👩‍👩‍👧",
        "\u{fffd}",
        "\u{ffff}",
        "\u{10ffff}",
        "owner",
        "index.html",
        "con",
        "NUL",
        ".DS_Store",
        "sto_other/a",
        "sto_other",
        "../sto_other/a%",
        "a\u{2215}b",
        "a\u{ff0f}b",
        "．．",
        "-",
        "--",
        "-rf",
    ];
    let mut keys: BTreeSet<String> = by_hand.map(str::to_owned).into_iter().collect();
    assert_eq!(keys.len(), by_hand.len());
    keys.remove("../sto_other/a%");
    // The longest keys, in one segment and in many. A file name has at most 255 bytes.
    keys.extend(["x".repeat(1024), "y".repeat(1023), "é".repeat(512), "🦀".repeat(256), "z/".repeat(512)]);
    // A pseudo-random sequence of characters that need care.
    let alphabet = ['a', '/', '.', '%', '2', 'e', '\\', '\u{1}', 'é', '#', '+', ' ', '?', '🦀'];
    let mut state = 1_u64;
    while keys.len() < 160 {
        let length = 1 + state % 12;
        let mut key = String::new();
        for _ in 0..length {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            key.push(alphabet[(state >> 33) as usize % alphabet.len()]);
        }
        if !key.split('/').any(|segment| matches!(segment, "." | "..")) {
            keys.insert(key);
        }
    }
    keys.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_key_is_one_object_of_one_project() {
    on_each_store(async |rig| {
        let (one, other) = (grant("one"), grant("other"));
        let keys = tricky();
        for key in &keys {
            rig.put(&one, key, format!("one {key}")).await;
        }
        // The other project has the same keys, except the last, and its own contents.
        let (last, shared) = keys.split_last().unwrap();
        assert_eq!(rig.keys(&other).await, [""; 0]);
        for key in shared {
            assert_eq!(rig.get(&other, key).await, None, "{key:?}");
            rig.put(&other, key, format!("other {key}")).await;
        }
        for key in &keys {
            assert_eq!(rig.get(&one, key).await, Some(format!("one {key}").into_bytes()), "{key:?}");
            let head = rig.storage.head(&one, super::key(key)).await.unwrap().unwrap();
            assert_eq!((&head.key, head.size), (key, 4 + key.len() as u64));
        }
        for key in shared {
            assert_eq!(rig.get(&other, key).await, Some(format!("other {key}").into_bytes()), "{key:?}");
        }
        // The order is that of the bytes, which is the order of `BTreeSet<String>`.
        assert_eq!(rig.keys(&one).await, keys);
        for key in shared {
            rig.delete(&one, &[key]).await;
        }
        assert_eq!(rig.keys(&one).await, [last.as_str()]);
        assert_eq!(rig.keys(&other).await, shared);
        // Each remaining object has one blob.
        rig.wait_for_blobs(keys.len()).await;
    })
    .await;
}

#[test]
fn grant_with_a_prefix_that_is_a_path_is_refused() {
    for prefix in ["", "a/b", "..", ".", "a\0", "é", "a b", "%2e"] {
        let part = protocol::Storage { prefix: prefix.to_owned(), quota_bytes: 1 };
        assert!(node::storage::Grant::new("u", "p", &part).is_none(), "{prefix:?}");
    }
}

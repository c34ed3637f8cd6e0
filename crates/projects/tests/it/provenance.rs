//! The Git information that an uploader states.

use projects::Git;

#[test]
fn commit_is_7_to_64_hex_digits() {
    let (shortest, longest) = ("0123abc", "f".repeat(64));
    for (stated, kept) in [
        (shortest, Some(shortest)),
        (&longest, Some(longest.as_str())),
        ("0123ABCDEF", Some("0123abcdef")),
        ("", None),
        ("0123ab", None),
        (&"f".repeat(65), None),
        ("0123abg", None),
        ("0123abc ", None),
        ("０１２３４５６", None),
    ] {
        let git = Git::from_headers(Some(stated), None, None, None);
        assert_eq!(git, Git { commit: kept.map(str::to_owned), ..Git::default() }, "{stated:?}");
    }
}

#[test]
fn first_line_of_the_message_is_kept() {
    let (long, cut) = ("ü".repeat(300), "ü".repeat(200));
    for (stated, kept) in [
        ("Fix the cart", Some("Fix the cart")),
        ("Fix the cart\n\nIt was empty.", Some("Fix the cart")),
        ("Fix the cart\r\nIt was empty.", Some("Fix the cart")),
        (&long, Some(cut.as_str())),
        ("", None),
        ("\nFix", None),
        ("\t", None),
        ("Fix\tthe cart", Some("Fix the cart")),
        ("Fix\u{7}", Some("Fix")),
        ("Fix\rthe cart", Some("Fix the cart")),
        ("\u{1b}[31mred", Some("[31mred")),
    ] {
        let git = Git::from_headers(None, Some(stated), None, None);
        assert_eq!(git, Git { message: kept.map(str::to_owned), ..Git::default() }, "{stated:?}");
    }
}

#[test]
fn invalid_branch_is_ignored() {
    let (longest, longer) = ("b".repeat(255), "b".repeat(256));
    for (stated, kept) in [
        ("main", true),
        ("feature/größer", true),
        (&longest, true),
        (&longer, false),
        (&"ü".repeat(128), false),
        ("", false),
        ("main\n", false),
        ("a\0b", false),
    ] {
        let git = Git::from_headers(None, None, Some(stated), None);
        assert_eq!(git, Git { branch: kept.then(|| stated.to_owned()), ..Git::default() }, "{stated:?}");
    }
}

#[test]
fn dirty_is_true_or_false() {
    for (stated, kept) in [
        ("true", Some(true)),
        ("false", Some(false)),
        ("", None),
        ("TRUE", None),
        ("1", None),
        ("yes", None),
        (" true", None),
    ] {
        let git = Git::from_headers(None, None, None, Some(stated));
        assert_eq!(git, Git { dirty: kept, ..Git::default() }, "{stated:?}");
    }
}

#[test]
fn malformed_values_do_not_affect_the_others() {
    assert_eq!(Git::from_headers(None, None, None, None), Git::default());
    let git = Git::from_headers(Some("not hex"), Some("Fix"), Some(""), Some("true"));
    assert_eq!(git, Git { message: Some("Fix".to_owned()), dirty: Some(true), ..Git::default() });
}

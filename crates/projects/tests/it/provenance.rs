//! What is kept of what an uploader says about the origin of a bundle.

use projects::Git;

#[test]
fn a_commit_is_seven_to_sixty_four_hex_digits() {
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
        let git = Git::stated(Some(stated), None, None, None);
        assert_eq!(git, Git { commit: kept.map(str::to_owned), ..Git::default() }, "{stated:?}");
    }
}

#[test]
fn of_a_message_the_first_line_is_kept() {
    let (long, cut) = ("ü".repeat(300), "ü".repeat(200));
    for (stated, kept) in [
        ("Fix the door", Some("Fix the door")),
        ("Fix the door\n\nIt squeaked.", Some("Fix the door")),
        ("Fix the door\r\nIt squeaked.", Some("Fix the door")),
        (&long, Some(cut.as_str())),
        ("", None),
        ("\nFix", None),
        ("Fix\u{7}", None),
        ("Fix\rthe door", None),
        ("\u{1b}[31mred", None),
    ] {
        let git = Git::stated(None, Some(stated), None, None);
        assert_eq!(git, Git { message: kept.map(str::to_owned), ..Git::default() }, "{stated:?}");
    }
}

#[test]
fn a_branch_is_kept_whole_or_not() {
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
        let git = Git::stated(None, None, Some(stated), None);
        assert_eq!(git, Git { branch: kept.then(|| stated.to_owned()), ..Git::default() }, "{stated:?}");
    }
}

#[test]
fn dirty_is_one_of_two_words() {
    for (stated, kept) in [
        ("true", Some(true)),
        ("false", Some(false)),
        ("", None),
        ("TRUE", None),
        ("1", None),
        ("yes", None),
        (" true", None),
    ] {
        let git = Git::stated(None, None, None, Some(stated));
        assert_eq!(git, Git { dirty: kept, ..Git::default() }, "{stated:?}");
    }
}

#[test]
fn one_malformed_statement_takes_no_other_along() {
    assert_eq!(Git::stated(None, None, None, None), Git::default());
    let git = Git::stated(Some("not hex"), Some("Fix"), Some(""), Some("true"));
    assert_eq!(git, Git { message: Some("Fix".to_owned()), dirty: Some(true), ..Git::default() });
}

//! Owner names.

use dns::{InvalidName, NameError, OwnerName};

use crate::records::{ZONE, zone};

/// Input, and the name relative to the zone.
const OWNERS: &[(&str, &str)] = &[
    ("@", "@"),
    ("example.org", "@"),
    ("Example.ORG.", "@"),
    ("www", "www"),
    ("WWW", "www"),
    ("www.example.org", "www"),
    ("www.EXAMPLE.org.", "www"),
    ("wwwexample.org", "wwwexample.org"),
    ("example.com", "example.com"),
    ("org", "org"),
    ("_dmarc.mail", "_dmarc.mail"),
    ("_443._tcp", "_443._tcp"),
    ("-a-", "-a-"),
    ("*", "*"),
    ("*.example.org", "*"),
    ("*.a", "*.a"),
    ("0/25", "0/25"),
    ("a!b", r"a\!b"),
    (r"\a\.\b", r"a\.b"),
    (r"\065", "a"),
    (r"a\032b", r"a\032b"),
    (r"a\ b", r"a\032b"),
    (r"\010$include", r"\010\$include"),
    (r"\@", r"\@"),
    (r"\255\000", r"\255\000"),
    ("\\;\\(\\)\\\"", r#"\;\(\)\""#),
    ("münchen", "xn--mnchen-3ya"),
    ("MÜNCHEN.example.org", "xn--mnchen-3ya"),
    ("*.münchen", "*.xn--mnchen-3ya"),
    ("_x.straße", "_x.xn--strae-oqa"),
    ("ｗｗｗ。a", "www.a"),
    ("xn--mnchen-3ya", "xn--mnchen-3ya"),
];

#[test]
fn owner_names_are_normalized() {
    let zone = zone();
    for &(text, relative) in OWNERS {
        let owner = OwnerName::parse(text, &zone).unwrap_or_else(|why| panic!("{text}: the name {why}"));
        assert_eq!(owner.as_str(), relative, "{text}");
        assert_eq!(OwnerName::parse(relative, &zone).as_ref(), Ok(&owner), "{text}");
        assert_eq!(OwnerName::parse(&owner.absolute(&zone), &zone).as_ref(), Ok(&owner), "{text}");
        assert_eq!(OwnerName::parse(&format!("{}.", owner.absolute(&zone)), &zone).as_ref(), Ok(&owner), "{text}");
        assert_eq!(OwnerName::from_wire(owner.wire(&zone).as_bytes(), &zone), Ok(owner), "{text}");
    }
}

#[test]
fn name_that_ends_in_the_zone_name_is_absolute() {
    let zone = zone();
    let owner = OwnerName::parse("example.org.example.org", &zone).unwrap();
    assert_eq!((owner.as_str(), owner.absolute(&zone).as_str()), ("example.org", "example.org.example.org"));
    assert_eq!(OwnerName::parse(owner.as_str(), &zone), Ok(OwnerName::apex()));
}

#[test]
fn invalid_owner_names_are_rejected() {
    let syntax = |error: NameError| InvalidName::Syntax(error);
    let outside = || InvalidName::OutOfZone(ZONE.to_owned());
    for (text, why) in [
        ("", syntax(NameError::EmptyLabel)),
        ("..", syntax(NameError::EmptyLabel)),
        (".a", syntax(NameError::EmptyLabel)),
        ("a..b", syntax(NameError::EmptyLabel)),
        ("a b", syntax(NameError::Character)),
        ("a\tb", syntax(NameError::Character)),
        ("a\nb", syntax(NameError::Character)),
        ("a\0", syntax(NameError::Character)),
        ("a;b", syntax(NameError::Character)),
        ("\"a\"", syntax(NameError::Character)),
        ("a(b", syntax(NameError::Character)),
        (r"a\", syntax(NameError::Escape)),
        (r"a\25", syntax(NameError::Escape)),
        (r"a\256", syntax(NameError::Escape)),
        (r"a\2x5", syntax(NameError::Escape)),
        ("a\\\nb", syntax(NameError::Escape)),
        (r"ü\.a", syntax(NameError::Mixed)),
        ("a\u{fffd}b", syntax(NameError::Idna)),
        ("a\u{ff0f}b", syntax(NameError::Idna)),
        ("ü b", syntax(NameError::Idna)),
        ("ü\u{200b}\u{a0}", syntax(NameError::Idna)),
        ("xn--a.ü", syntax(NameError::Idna)),
        ("a.*", InvalidName::Wildcard),
        ("a*", InvalidName::Wildcard),
        ("**", InvalidName::Wildcard),
        (".", outside()),
        ("a.", outside()),
        ("www.example.com.", outside()),
        ("wwwexample.org.", outside()),
        ("org.", outside()),
        (r"www\.example.org.", outside()),
    ] {
        assert_eq!(OwnerName::parse(text, &zone()), Err(why), "{text:?}");
    }
}

#[test]
fn length_limits_apply_to_wire_format() {
    let zone = zone();
    let fill =
        |length: usize| format!("{}.{}.{}.{}", "a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(length));
    assert!(OwnerName::parse(&"a".repeat(63), &zone).is_ok());
    assert_eq!(OwnerName::parse(&"a".repeat(64), &zone), Err(NameError::LongLabel.into()));
    assert!(OwnerName::parse(&r"\001".repeat(63), &zone).is_ok());
    assert_eq!(OwnerName::parse(&fill(49), &zone).unwrap().wire(&zone).as_bytes().len(), 255);
    assert_eq!(OwnerName::parse(&fill(50), &zone), Err(NameError::Long.into()));
    assert_eq!(OwnerName::parse(&"a.".repeat(100_000), &zone), Err(NameError::Long.into()));
}

#[test]
fn names_sort_in_canonical_order() {
    let zone = zone();
    // RFC 4034 section 6.1.
    let ordered = ["@", "a", "yljkjljk.a", "z.a", "zabc.a", "z", r"\001.z", "*.z", r"\200.z"];
    let mut names: Vec<_> = ordered.iter().rev().map(|text| OwnerName::parse(text, &zone).unwrap()).collect();
    names.sort_by_cached_key(OwnerName::canonical_key);
    assert_eq!(names.iter().map(OwnerName::as_str).collect::<Vec<_>>(), ordered);
}

//! Parsing and writing of zone files.

use dns::{OwnerName, RecordSet, Soa, ZoneSize, zonefile};

use crate::records::{kind, parse, zone};

/// Returns each set as `line owner ttl type data…`, or each error as `line message`.
fn read(text: &str) -> Result<Vec<String>, Vec<String>> {
    let summary = |set: &RecordSet| {
        let records: Vec<_> = set.records.iter().map(|record| record.text(set.kind)).collect();
        format!("{} {} {} {}", set.owner.as_str(), set.ttl, set.kind, records.join(" | "))
    };
    match zonefile::read(&zone(), text) {
        Ok(file) => Ok(file.sets.iter().map(|(line, set)| format!("{line} {}", summary(set))).collect()),
        Err(errors) => Err(errors.iter().map(|error| format!("{} {}", error.line, error.message)).collect()),
    }
}

#[track_caller]
fn assert_sets(text: &str, sets: &[&str]) {
    assert_eq!(read(text), Ok(sets.iter().map(ToString::to_string).collect()), "{text}");
}

#[track_caller]
fn assert_errors(text: &str, errors: &[&str]) {
    assert_eq!(read(text), Err(errors.iter().map(ToString::to_string).collect()), "{text}");
}

/// Common styles of zone files.
pub(crate) const STYLES: &str = r#"; a zone
$ORIGIN example.org.
$TTL 1h
@	IN	SOA	ns1 hostmaster (
		2026010100 ; serial
		1d 2h ; refresh, retry
		4w 5m )
	IN	NS	ns1 ; the apex again
		NS	ns2.example.net.
ns1		a	192.0.2.1
		AAAA	2001:DB8::1
www	300	IN	CNAME	ns1
mail	IN	600	MX	10 mail
mail 10m in mx ( 20
	backup )

$ORIGIN sub.example.org.
@ TXT "a ; b" c ( "d"
  "e" ) ; comment
*	TYPE1 \# 4 C0000202
$ORIGIN deep
x CLASS1 TYPE16 \# 2 0161
$ORIGIN .
y.example.org 1h30m TXT "\"(" "\;"
$TTL 60
y.example.org 90M TXT last
_x.example.org TXT q"#;

#[test]
fn common_styles_are_parsed() {
    let file = STYLES;
    let sets = [
        "8 @ 3600 NS ns1.example.org. | ns2.example.net.",
        "10 ns1 3600 A 192.0.2.1",
        "11 ns1 3600 AAAA 2001:db8::1",
        "12 www 300 CNAME ns1.example.org.",
        "13 mail 600 MX 10 mail.example.org. | 20 backup.example.org.",
        r#"18 sub 3600 TXT "a ; b" "c" "d" "e""#,
        "20 *.sub 3600 A 192.0.2.2",
        r#"22 x.deep.sub 3600 TXT "a""#,
        r#"24 y 5400 TXT "\"(" ";" | "last""#,
        r#"27 _x 60 TXT "q""#,
    ];
    assert_sets(file, &sets);
    assert_sets(&file.replace('\n', "\r\n"), &sets);
    assert_sets(&format!("\u{feff}{file}\n"), &sets);
}

#[test]
fn missing_ttl_uses_the_defaults_in_order() {
    let soa = "@ SOA a b 1 2 3 4 900\n";
    assert_sets("a A 192.0.2.1", &["1 a 300 A 192.0.2.1"]);
    assert_sets(&format!("{soa}a A 192.0.2.1"), &["2 a 900 A 192.0.2.1"]);
    assert_sets(&format!("{soa}b 60 A 192.0.2.1\na A 192.0.2.1"), &["2 b 60 A 192.0.2.1", "3 a 60 A 192.0.2.1"]);
    assert_sets(&format!("$TTL 1m\n@ 30 {}a A 192.0.2.1", &soa[2..]), &["3 a 60 A 192.0.2.1"]);
    assert_errors(
        "@ SOA a b 1 2 3 4 0\na A 192.0.2.1",
        &["2 the record has a TTL of 0 seconds; it must be from 30 to 86400"],
    );
}

#[test]
fn owner_names_are_relative_to_the_origin() {
    assert_sets("example.org. A 192.0.2.1", &["1 @ 300 A 192.0.2.1"]);
    // In a file, a name without the final dot is always relative.
    assert_sets("www.example.org A 192.0.2.1", &["1 www.example.org 300 A 192.0.2.1"]);
    assert_sets("münchen.EXAMPLE.org. A 192.0.2.1", &["1 xn--mnchen-3ya 300 A 192.0.2.1"]);
    assert_sets(r"\087\.w A 192.0.2.1", &[r"1 w\.w 300 A 192.0.2.1"]);
    assert_sets("$ORIGIN org.\nexample A 192.0.2.1\n", &["2 @ 300 A 192.0.2.1"]);
    assert_sets("IN IN A 192.0.2.1\n30 30 A 192.0.2.1\n", &["1 in 300 A 192.0.2.1", "2 30 30 A 192.0.2.1"]);
    assert_sets("(a A\n192.0.2.1)", &["1 a 300 A 192.0.2.1"]);
    assert_sets("", &[]);
    assert_sets(" \n;\n()\n\t\n", &[]);
}

#[test]
fn duplicate_records_count_once() {
    assert_sets(
        "a A 192.0.2.1\nb A 192.0.2.1\nA.example.org. A 192.0.2.1\na A 192.0.2.0",
        &["1 a 300 A 192.0.2.0 | 192.0.2.1", "2 b 300 A 192.0.2.1"],
    );
    assert_sets("www CNAME a\nwww CNAME A.example.org.", &["1 www 300 CNAME a.example.org."]);
    assert_sets("@ SOA a b 1 2 3 4 900\na 60 A 192.0.2.1\n@ SOA a b 1 2 3 4 900", &["2 a 60 A 192.0.2.1"]);
}

/// A line, and its error.
const ERRORS: &[(&str, &str)] = &[
    ("a A 192.0.2", "the A record is not a valid IPv4 address: 192.0.2"),
    ("a A", "the A record has no IPv4 address"),
    ("a A 192.0.2.1 x", "the A record has more fields than the type A: x"),
    ("a", "the line has no record type"),
    ("a 300 IN", "the line has no record type"),
    ("a 300 400 A 192.0.2.1", "the type is not supported: 400"),
    ("a 3x A 192.0.2.1", "the TTL is not a valid time: 3x"),
    ("a 4294967296 A 192.0.2.1", "the TTL is not a valid time: 4294967296"),
    ("a 7102w A 192.0.2.1", "the TTL is not a valid time: 7102w"),
    ("a 29 A 192.0.2.1", "the record has a TTL of 29 seconds; it must be from 30 to 86400"),
    ("a 86401 A 192.0.2.1", "the record has a TTL of 86401 seconds; it must be from 30 to 86400"),
    ("a CH A 192.0.2.1", "the class is CH; only IN is supported"),
    ("a CLASS3 A 192.0.2.1", "the class is CLASS3; only IN is supported"),
    ("a HINFO x y", "the type is not supported: HINFO"),
    ("a TYPE65280 \\# 0", "the type is not supported: TYPE65280"),
    ("a TYPE+1 192.0.2.1", "the type is not supported: TYPE+1"),
    ("a DNAME b", "the type is not supported: DNAME"),
    ("a NSEC b A", "nameservers create records of the DNSSEC type NSEC; remove the record"),
    ("a dnskey 257 3 13 AA==", "nameservers create records of the DNSSEC type DNSKEY; remove the record"),
    ("$INCLUDE /etc/passwd", "$INCLUDE is not supported; insert the lines of the other file"),
    ("$generate 1-9 a$ A 192.0.2.$", "$GENERATE is not supported; list the records"),
    ("$ORIGIN", "$ORIGIN takes one value"),
    ("$ORIGIN a..b", "the name after $ORIGIN is empty or has an empty label: a..b"),
    ("$TTL x", "$TTL is not a valid time: x"),
    ("$TTL 1 2", "$TTL takes one value"),
    ("$DATE", "the line begins with an unknown directive; only $ORIGIN and $TTL are supported"),
    ("a.example.net. A 192.0.2.1", "the name is not in the zone example.org: a.example.net."),
    ("a.* A 192.0.2.1", "the name has a * that is not its whole first label: a.*"),
    ("\"a\" A 192.0.2.1", "the name is in quotation marks"),
    ("a TXT \"x", "the line has a quotation mark that is not closed on its line"),
    ("a TXT x)", "the line closes a parenthesis that is not open"),
    ("a TXT \\25", "the line has a \\ that is not followed by a character or by three digits up to 255"),
    ("a TXT \u{0}", "the line has a control character, which must be written as \\DDD"),
    ("a TXT x\ry", "the line has a control character, which must be written as \\DDD"),
    ("@ CNAME b", "the set @ CNAME is a CNAME at the zone apex, which has other records"),
    ("*.b NS c", "the set *.b NS is an NS set at a wildcard name"),
    ("b SOA a b 1 2 3 4 5", "the SOA record is not at the zone apex but at b"),
    ("@ SOA a b 1 2 3 4", "the SOA record has no minimum"),
];

#[test]
fn errors_are_reported_by_line() {
    for &(line, error) in ERRORS {
        assert_errors(line, &[&format!("1 {error}")]);
        let file = format!("before A 192.0.2.1\n; comment (\n(\n\n)\n{line}\nafter 60 A 192.0.2.1\n");
        assert_errors(&file, &[&format!("6 {error}")]);
        assert_errors(&file.replace('\n', "\r\n"), &[&format!("6 {error}")]);
    }
    assert_errors(" A 192.0.2.1", &["1 the line begins with white space, but no line before it has a name"]);
    assert_errors("a A (\n192.0.2.1\n", &["1 the line opens a parenthesis that is never closed"]);
    assert_errors(
        "a A (\n192.0.2.x\n)\nb A (x\n)",
        &["1 the A record is not a valid IPv4 address: 192.0.2.x", "4 the A record is not a valid IPv4 address: x"],
    );
    // Indented lines do not repeat the error of their owner name.
    assert_errors(
        "a..b A 192.0.2.1\n A 192.0.2.2\n A x\n",
        &["1 the name is empty or has an empty label: a..b", "3 the A record is not a valid IPv4 address: x"],
    );
}

#[test]
fn invalid_sets_are_rejected() {
    assert_errors(
        "a 60 A 192.0.2.1\na 90 A 192.0.2.2",
        &["2 the record has a TTL of 90, but line 1 has 60 for the same set"],
    );
    assert_errors(
        "a CNAME b\nc CNAME d\na A 192.0.2.1",
        &["3 a CNAME and the type A are both at a: see lines 1 and 3"],
    );
    assert_errors("a TXT x\nb TXT x\na CNAME b", &["3 a CNAME and the type TXT are both at a: see lines 1 and 3"]);
    assert_errors("a CNAME b\na CNAME c", &["1 the set a CNAME has more than one CNAME"]);
    let many = |count: u32| (0..count).map(|n| format!("a A 192.0.2.{n}\n")).collect::<String>();
    assert!(read(&many(100)).is_ok());
    assert_errors(&many(101), &["1 the set a A has 101 records; the limit is 100"]);
    // The parser does not read further records.
    assert_errors(&many(200), &["1 the set a A has 101 records; the limit is 100"]);
    let text = format!("a TXT {}\n", format!("\"{}\" ", "x".repeat(255)).repeat(192));
    assert!(read(&text).is_ok());
    assert_errors(&format!("{text}a TXT x\n"), &["1 the set a TXT has 49154 bytes of data; the limit is 49152"]);
    assert_errors(
        "@ SOA a b 1 2 3 4 5\n@ SOA a b 2 2 3 4 5",
        &["2 the file has a different SOA record before this line"],
    );
}

#[test]
fn parser_ends_at_the_line_that_exceeds_the_size() {
    let max_size = ZoneSize { rrset_count: 3, bytes: 30 };
    let errors = |text: &str| match zonefile::read_within(&zone(), text, max_size) {
        Ok(file) => panic!("{file:?}"),
        Err(errors) => errors.iter().map(|error| format!("{} {}", error.line, error.message)).collect::<Vec<_>>(),
    };
    // The last line is not parsed.
    let sets = "a A 192.0.2.1\nb A 192.0.2.1\nc A 192.0.2.1\nd A 192.0.2.1\nx\n";
    assert_eq!(errors(sets), ["4 the file has more than 3 rrsets up to this line"]);
    // The name has one byte, and each record has six.
    let records: String = (0..5).map(|n| format!("a A 192.0.2.{n}\n")).collect();
    assert_eq!(
        errors(&format!("{records}x\n")),
        ["5 the file has more than 30 bytes of names and data up to this line"]
    );
    let duplicates = "a A 192.0.2.1\n".repeat(1000);
    assert_eq!(zonefile::read_within(&zone(), &duplicates, max_size).unwrap().sets.len(), 1);
}

#[test]
fn at_most_100_errors_are_reported() {
    let errors = read(&"a A x\n".repeat(1000)).unwrap_err();
    assert_eq!((errors.len(), errors[99].as_str()), (100, "100 the A record is not a valid IPv4 address: x"));
    let mixed = format!("a CNAME b\na A 192.0.2.1\n{}", "a A x\n".repeat(200));
    let errors = read(&mixed).unwrap_err();
    assert_eq!((errors.len(), &errors[0][..9], &errors[99][..3]), (100, "2 a CNAME", "101"));
}

#[test]
fn zone_is_written_in_canonical_order() {
    let zone = zone();
    let soa = Soa {
        primary: "ns1.example.net".to_owned(),
        hostmaster: r"host\.master.example.net\.".to_owned(),
        serial: 7,
        refresh: 3600,
        retry: 600,
        expire: 604_800,
        minimum: 300,
    };
    let set = |owner: &str, ttl, mnemonic, texts: &[&str]| {
        let records = texts.iter().map(|text| parse(mnemonic, text).unwrap()).collect();
        RecordSet::new(OwnerName::parse(owner, &zone).unwrap(), kind(mnemonic), ttl, records)
    };
    let sets = [
        set("*.b", 60, "TXT", &["\"a\\010$INCLUDE x\""]),
        set("b", 300, "MX", &["20 b", "10 ."]),
        set(r"\$a", 300, "A", &["192.0.2.1"]),
        set("@", 300, "A", &["192.0.2.2", "192.0.2.1"]),
        set("@", 86_400, "NS", &["ns1.example.net."]),
    ];
    let text = zonefile::write(&zone, &soa, &sets);
    let expected = r#"$ORIGIN example.org.
$TTL 300
@	3600	IN	SOA	ns1.example.net. host\.master.example.net\.. 7 3600 600 604800 300
@	86400	IN	NS	ns1.example.net.
@	300	IN	A	192.0.2.1
@	300	IN	A	192.0.2.2
\$a	300	IN	A	192.0.2.1
b	300	IN	MX	10 .
b	300	IN	MX	20 b.example.org.
*.b	60	IN	TXT	"a\010$INCLUDE x"
"#;
    assert_eq!(text, expected);
    let file = zonefile::read(&zone, &text).unwrap();
    assert_eq!(file.soa.as_ref(), Some(&soa));
    let mut read: Vec<_> = file.sets.into_iter().map(|(_, set)| set).collect();
    assert!(sets.iter().all(|set| read.contains(set)));
    read.reverse();
    assert_eq!(zonefile::write(&zone, &soa, &read), text);
}

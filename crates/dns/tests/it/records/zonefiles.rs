//! Zone files: what they say, and what is wrong with them.

use dns::{OwnerName, RecordSet, Soa, zonefile};

use crate::records::{kind, parse, zone};

/// Each set as `line owner ttl type data…`, or each fault as `line message`.
fn read(text: &str) -> Result<Vec<String>, Vec<String>> {
    let told = |set: &RecordSet| {
        let records: Vec<_> = set.records.iter().map(|record| record.text(set.kind)).collect();
        format!("{} {} {} {}", set.owner.as_str(), set.ttl, set.kind, records.join(" | "))
    };
    match zonefile::read(&zone(), text) {
        Ok(file) => Ok(file.sets.iter().map(|(line, set)| format!("{line} {}", told(set))).collect()),
        Err(faults) => Err(faults.iter().map(|fault| format!("{} {}", fault.line, fault.message)).collect()),
    }
}

#[track_caller]
fn says(text: &str, sets: &[&str]) {
    assert_eq!(read(text), Ok(sets.iter().map(ToString::to_string).collect()), "{text}");
}

#[track_caller]
fn faults(text: &str, faults: &[&str]) {
    assert_eq!(read(text), Err(faults.iter().map(ToString::to_string).collect()), "{text}");
}

/// As people write them.
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
fn a_file_in_every_style_is_read() {
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
    says(file, &sets);
    says(&file.replace('\n', "\r\n"), &sets);
    says(&format!("\u{feff}{file}\n"), &sets);
}

#[test]
fn a_record_without_a_ttl_has_the_nearest() {
    let soa = "@ SOA a b 1 2 3 4 900\n";
    says("a A 192.0.2.1", &["1 a 300 A 192.0.2.1"]);
    says(&format!("{soa}a A 192.0.2.1"), &["2 a 900 A 192.0.2.1"]);
    says(&format!("{soa}b 60 A 192.0.2.1\na A 192.0.2.1"), &["2 b 60 A 192.0.2.1", "3 a 60 A 192.0.2.1"]);
    says(&format!("$TTL 1m\n@ 30 {}a A 192.0.2.1", &soa[2..]), &["3 a 60 A 192.0.2.1"]);
    faults(
        "@ SOA a b 1 2 3 4 0\na A 192.0.2.1",
        &["2 the record has a TTL of 0 seconds, where 30 to 86400 are possible"],
    );
}

#[test]
fn names_are_those_of_the_zone() {
    says("example.org. A 192.0.2.1", &["1 @ 300 A 192.0.2.1"]);
    // A name without the final dot is relative in a file, whatever it ends in.
    says("www.example.org A 192.0.2.1", &["1 www.example.org 300 A 192.0.2.1"]);
    says("münchen.EXAMPLE.org. A 192.0.2.1", &["1 xn--mnchen-3ya 300 A 192.0.2.1"]);
    says(r"\087\.w A 192.0.2.1", &[r"1 w\.w 300 A 192.0.2.1"]);
    says("$ORIGIN org.\nexample A 192.0.2.1\n", &["2 @ 300 A 192.0.2.1"]);
    says("IN IN A 192.0.2.1\n30 30 A 192.0.2.1\n", &["1 in 300 A 192.0.2.1", "2 30 30 A 192.0.2.1"]);
    says("(a A\n192.0.2.1)", &["1 a 300 A 192.0.2.1"]);
    says("", &[]);
    says(" \n;\n()\n\t\n", &[]);
}

#[test]
fn what_is_said_twice_counts_once() {
    says(
        "a A 192.0.2.1\nb A 192.0.2.1\nA.example.org. A 192.0.2.1\na A 192.0.2.0",
        &["1 a 300 A 192.0.2.0 | 192.0.2.1", "2 b 300 A 192.0.2.1"],
    );
    says("www CNAME a\nwww CNAME A.example.org.", &["1 www 300 CNAME a.example.org."]);
    says("@ SOA a b 1 2 3 4 900\na 60 A 192.0.2.1\n@ SOA a b 1 2 3 4 900", &["2 a 60 A 192.0.2.1"]);
}

/// A line, and the fault there.
const FAULTS: &[(&str, &str)] = &[
    ("a A 192.0.2", "the A record is no IPv4 address: 192.0.2"),
    ("a A", "the A record has no IPv4 address"),
    ("a A 192.0.2.1 x", "the A record has more than belongs to the type A: x"),
    ("a", "the line ends before a type"),
    ("a 300 IN", "the line ends before a type"),
    ("a 300 400 A 192.0.2.1", "the type is not supported: 400"),
    ("a 3x A 192.0.2.1", "the TTL is no time: 3x"),
    ("a 4294967296 A 192.0.2.1", "the TTL is no time: 4294967296"),
    ("a 7102w A 192.0.2.1", "the TTL is no time: 7102w"),
    ("a 29 A 192.0.2.1", "the record has a TTL of 29 seconds, where 30 to 86400 are possible"),
    ("a 86401 A 192.0.2.1", "the record has a TTL of 86401 seconds, where 30 to 86400 are possible"),
    ("a CH A 192.0.2.1", "the class is CH, where only IN is possible"),
    ("a CLASS3 A 192.0.2.1", "the class is CLASS3, where only IN is possible"),
    ("a HINFO x y", "the type is not supported: HINFO"),
    ("a TYPE65280 \\# 0", "the type is not supported: TYPE65280"),
    ("a TYPE+1 192.0.2.1", "the type is not supported: TYPE+1"),
    ("a DNAME b", "the type is not supported: DNAME"),
    ("a NSEC b A", "the type NSEC is of DNSSEC, whose records the nameservers make; leave it out"),
    ("a dnskey 257 3 13 AA==", "the type DNSKEY is of DNSSEC, whose records the nameservers make; leave it out"),
    ("$INCLUDE /etc/passwd", "$INCLUDE is not followed; put the other file's lines here"),
    ("$generate 1-9 a$ A 192.0.2.$", "$GENERATE is not supported; write the records out"),
    ("$ORIGIN", "$ORIGIN takes one word"),
    ("$ORIGIN a..b", "the name behind $ORIGIN has an empty label: two dots in a row, or nothing at all: a..b"),
    ("$TTL x", "$TTL is no time: x"),
    ("$TTL 1 2", "$TTL takes one word"),
    ("$DATE", "the line begins with a $ but is neither $ORIGIN nor $TTL"),
    ("a.example.net. A 192.0.2.1", "the name is not in the zone example.org: a.example.net."),
    ("a.* A 192.0.2.1", "the name has a * that is not its whole first label: a.*"),
    ("\"a\" A 192.0.2.1", "the name is in quotation marks"),
    ("a TXT \"x", "the line has a quotation mark that is not closed on its line"),
    ("a TXT x)", "the line closes a parenthesis that is not open"),
    ("a TXT \\25", "the line has a \\ without a character, or three digits up to 255, behind it"),
    ("a TXT \u{0}", "the line has a control character, which must be written as \\DDD"),
    ("a TXT x\ry", "the line has a control character, which must be written as \\DDD"),
    ("@ CNAME b", "the set @ CNAME is a CNAME at the zone's own name, which has other records"),
    ("*.b NS c", "the set *.b NS is an NS at a wildcard"),
    ("b SOA a b 1 2 3 4 5", "the SOA record is not at the zone's own name but at b"),
    ("@ SOA a b 1 2 3 4", "the SOA record has no minimum"),
];

#[test]
fn faults_are_told_by_line() {
    for &(line, fault) in FAULTS {
        faults(line, &[&format!("1 {fault}")]);
        let file = format!("before A 192.0.2.1\n; comment (\n(\n\n)\n{line}\nafter 60 A 192.0.2.1\n");
        faults(&file, &[&format!("6 {fault}")]);
        faults(&file.replace('\n', "\r\n"), &[&format!("6 {fault}")]);
    }
    faults(" A 192.0.2.1", &["1 the line begins with white space, but there is no name before it"]);
    faults("a A (\n192.0.2.1\n", &["1 the line opens a parenthesis that is never closed"]);
    faults(
        "a A (\n192.0.2.x\n)\nb A (x\n)",
        &["1 the A record is no IPv4 address: 192.0.2.x", "4 the A record is no IPv4 address: x"],
    );
    // The lines that go on with a faulty name are not blamed for it.
    faults(
        "a..b A 192.0.2.1\n A 192.0.2.2\n A x\n",
        &[
            "1 the name has an empty label: two dots in a row, or nothing at all: a..b",
            "3 the A record is no IPv4 address: x",
        ],
    );
}

#[test]
fn sets_must_be_such_as_nameservers_serve() {
    faults("a 60 A 192.0.2.1\na 90 A 192.0.2.2", &["2 the record has a TTL of 90, and line 1 has 60 for the same set"]);
    faults("a CNAME b\nc CNAME d\na A 192.0.2.1", &["3 there is a CNAME beside the type A at a: see lines 1 and 3"]);
    faults("a TXT x\nb TXT x\na CNAME b", &["3 there is a CNAME beside the type TXT at a: see lines 1 and 3"]);
    faults("a CNAME b\na CNAME c", &["1 the set a CNAME has more than one CNAME"]);
    let many = |count: u32| (0..count).map(|n| format!("a A 192.0.2.{n}\n")).collect::<String>();
    assert!(read(&many(100)).is_ok());
    faults(&many(101), &["1 the set a A has 101 records, where 100 are possible"]);
    let text = format!("a TXT {}\n", format!("\"{}\" ", "x".repeat(255)).repeat(192));
    assert!(read(&text).is_ok());
    faults(&format!("{text}a TXT x\n"), &["1 the set a TXT has 49154 bytes of data, where 49152 are possible"]);
    faults("@ SOA a b 1 2 3 4 5\n@ SOA a b 2 2 3 4 5", &["2 there is another SOA record before"]);
}

#[test]
fn no_more_than_100_faults_are_told() {
    let told = read(&"a A x\n".repeat(1000)).unwrap_err();
    assert_eq!((told.len(), told[99].as_str()), (100, "100 the A record is no IPv4 address: x"));
    let mixed = format!("a CNAME b\na A 192.0.2.1\n{}", "a A x\n".repeat(200));
    let told = read(&mixed).unwrap_err();
    assert_eq!((told.len(), &told[0][..10], &told[99][..3]), (100, "2 there is", "101"));
}

#[test]
fn a_zone_is_written_in_its_order() {
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

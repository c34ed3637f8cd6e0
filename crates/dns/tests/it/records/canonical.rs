//! Canonical text of records.

use dns::Rdata;

use crate::records::{kind, parse};

/// Type, input, and canonical text.
pub(crate) const PAIRS: &[(&str, &str, &str)] = &[
    ("A", "192.0.2.1", "192.0.2.1"),
    ("A", "  192.0.2.1\t", "192.0.2.1"),
    ("A", r"\# 4 c0000201", "192.0.2.1"),
    ("A", r"\# 4 C0 00 02 01", "192.0.2.1"),
    ("AAAA", "2001:DB8::1", "2001:db8::1"),
    ("AAAA", "2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8::1"),
    ("AAAA", "2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"),
    ("AAAA", "::ffff:192.0.2.1", "::ffff:192.0.2.1"),
    ("AAAA", "::", "::"),
    ("AAAA", "1:0:0:2:3:4:5:6", "1::2:3:4:5:6"),
    ("CAA", r#"0 issue "ca.example.net""#, r#"0 issue "ca.example.net""#),
    ("CAA", "0 ISSUE ca.example.net", r#"0 issue "ca.example.net""#),
    ("CAA", r#"128 issuewild ";""#, r#"128 issuewild ";""#),
    ("CAA", r"000 issue ca.example\.net", r#"0 issue "ca.example.net""#),
    ("CAA", r#"0 iodef "mailto:security@example.org""#, r#"0 iodef "mailto:security@example.org""#),
    ("CAA", r#"0 tbs "a\"b\\c\001""#, r#"0 tbs "a\"b\\c\001""#),
    ("CAA", r"\# 14 00 05 6973737565 63612e7465 7374", r#"0 issue "ca.test""#),
    ("CNAME", "www", "www.example.org."),
    ("CNAME", "@", "example.org."),
    ("CNAME", "WWW.Example.NET.", "www.example.net."),
    ("CNAME", "www.example.net", "www.example.net.example.org."),
    ("CNAME", "_ACME.Verify.example.net.", "_acme.verify.example.net."),
    ("CNAME", "münchen.example.", "xn--mnchen-3ya.example."),
    ("CNAME", "_x.Straße", "_x.xn--strae-oqa.example.org."),
    ("CNAME", "例え。テスト。", "xn--r8jz45g.xn--zckzah."),
    ("CNAME", r"a\.b.example.", r"a\.b.example."),
    ("CNAME", r"\087\119w", "www.example.org."),
    ("CNAME", r"a\032b\@c\000.example.", r"a\032b\@c\000.example."),
    ("CNAME", "a!b+c.example.", r"a\!b\+c.example."),
    ("CNAME", r"\*\-\_\/.example.", "*-_/.example."),
    ("CNAME", ".", "."),
    ("CNAME", r"\# 5 03 575757 00", "www."),
    ("HTTPS", "0 Svc.Example.NET.", "0 svc.example.net."),
    ("HTTPS", "1 .", "1 ."),
    ("HTTPS", "1 . port=443 alpn=h2,h3", "1 . alpn=h2,h3 port=443"),
    ("HTTPS", r#"1 . alpn="h2,h3" no-default-alpn"#, "1 . alpn=h2,h3 no-default-alpn"),
    (
        "HTTPS",
        "1 @ ipv6hint=2001:DB8::1,::1 ipv4hint=192.0.2.1,192.0.2.2",
        "1 example.org. ipv4hint=192.0.2.1,192.0.2.2 ipv6hint=2001:db8::1,::1",
    ),
    ("HTTPS", "1 . key3=\\001\\187", "1 . port=443"),
    ("HTTPS", "1 . key8", "1 . key8"),
    ("HTTPS", "1 . ohttp", "1 . key8"),
    ("HTTPS", "1 . ech=AAQAAAAA", "1 . ech=AAQAAAAA"),
    (
        "SVCB",
        "16 foo.example.org. alpn=h2,h3-19 mandatory=ipv4hint,alpn ipv4hint=192.0.2.1",
        "16 foo.example.org. mandatory=alpn,ipv4hint alpn=h2,h3-19 ipv4hint=192.0.2.1",
    ),
    ("SVCB", r#"16 foo.example.org. alpn="f\\\\oo\\,bar,h2""#, r#"16 foo.example.org. alpn="f\\\\oo\\,bar,h2""#),
    ("SVCB", r"16 foo.example.org. alpn=f\\\092oo\092,bar,h2", r#"16 foo.example.org. alpn="f\\\\oo\\,bar,h2""#),
    ("SVCB", "1 foo.example.com. key667=hello", "1 foo.example.com. key667=hello"),
    ("SVCB", r#"1 foo.example.com. key667="hello\210qoo""#, r#"1 foo.example.com. key667="hello\210qoo""#),
    ("SVCB", "1 dns.example. alpn=h2 dohpath=/dns-query{?dns}", r#"1 dns.example. alpn=h2 key7="/dns-query{?dns}""#),
    ("LOC", "51 30 12.748 N 0 7 39.611 W 0m", "51 30 12.748 N 0 7 39.611 W 0.00m 1.00m 10000.00m 10.00m"),
    ("LOC", "42 21 54 N 71 06 18 W -24m 30m", "42 21 54.000 N 71 6 18.000 W -24.00m 30.00m 10000.00m 10.00m"),
    ("LOC", "52 14 05 n 00 08 50 e 10", "52 14 5.000 N 0 8 50.000 E 10.00m 1.00m 10000.00m 10.00m"),
    ("LOC", "32 7 19 S 116 2 25 E 10m 0.05m 20.5m 0", "32 7 19.000 S 116 2 25.000 E 10.00m 0.05m 20.00m 0.00m"),
    (
        "LOC",
        "90 S 180 W 42849672.95m 90000000m",
        "90 0 0.000 S 180 0 0.000 W 42849672.95m 90000000.00m 10000.00m 10.00m",
    ),
    ("LOC", r"\# 16 00 00 16 13 80000000 80000000 00989680", "0 0 0.000 N 0 0 0.000 E 0.00m 0.00m 10000.00m 10.00m"),
    ("MX", "10 mail", "10 mail.example.org."),
    ("MX", "010\tMail.Example.NET.", "10 mail.example.net."),
    ("MX", "0 .", "0 ."),
    (
        "NAPTR",
        r#"100 10 "U" "E2U+sip" "!^.*$!sip:info@example.com!" ."#,
        r#"100 10 "U" "E2U+sip" "!^.*$!sip:info@example.com!" ."#,
    ),
    (
        "NAPTR",
        r#"100 50 s http+I2L+I2C+I2R "" _http._tcp"#,
        r#"100 50 "s" "http+I2L+I2C+I2R" "" _http._tcp.example.org."#,
    ),
    ("NAPTR", r#"1 1 "" "" "!(\\d+)!\\1!i" ."#, r#"1 1 "" "" "!(\\d+)!\\1!i" ."#),
    ("NS", "NS1", "ns1.example.org."),
    ("NS", "ns.example.net.", "ns.example.net."),
    ("PTR", "Host.Example.COM.", "host.example.com."),
    ("SRV", "0 5 5060 sip", "0 5 5060 sip.example.org."),
    ("SRV", "0 0 0 .", "0 0 0 ."),
    (
        "SSHFP",
        "4 2 123456789ABCDEF67890123456789abcdef67890123456789abcdef123456789",
        "4 2 123456789abcdef67890123456789abcdef67890123456789abcdef123456789",
    ),
    ("SSHFP", "2 1 123456789abcdef6789012345 6789abcdef67890", "2 1 123456789abcdef67890123456789abcdef67890"),
    (
        "TLSA",
        "3 1 1 D2ABDE240D7CD3EE 6B4B28C54DF034B9 7983A1D16E8A410E 4561CB106618E971",
        "3 1 1 d2abde240d7cd3ee6b4b28c54df034b97983a1d16e8a410e4561cb106618e971",
    ),
    ("TLSA", "0 0 0 00", "0 0 0 00"),
    ("TXT", r#""v=spf1 -all""#, r#""v=spf1 -all""#),
    ("TXT", "v=spf1 -all", r#""v=spf1" "-all""#),
    ("TXT", r#""a" "b""#, r#""a" "b""#),
    ("TXT", r#""""#, r#""""#),
    ("TXT", r#""" """#, r#""" """#),
    ("TXT", r#""tab	\009 \"quote\" \\ \; \(""#, r#""tab\009\009 \"quote\" \\ ; (""#),
    ("TXT", r#""v=DKIM1; k=rsa; p=MIGf""#, r#""v=DKIM1; k=rsa; p=MIGf""#),
    ("TXT", r#""é€""#, r#""\195\169\226\130\172""#),
    ("TXT", r#""\013\010$INCLUDE /etc/passwd\000\255""#, r#""\013\010$INCLUDE /etc/passwd\000\255""#),
    ("TXT", r"\065\066C\ D", r#""ABC D""#),
    ("TXT", r"\# 4 03 616263", r#""abc""#),
    ("URI", r#"10 1 "https://www.example.org/path""#, r#"10 1 "https://www.example.org/path""#),
    ("URI", "10 1 ftp://ftp1.example.com/public", r#"10 1 "ftp://ftp1.example.com/public""#),
    (
        "SOA",
        "ns1 host\\.master 1 1h30m 2D 1w 300",
        r"ns1.example.org. host\.master.example.org. 1 5400 172800 604800 300",
    ),
];

#[test]
fn records_have_one_canonical_text() {
    for &(mnemonic, text, canonical) in PAIRS {
        let kind = kind(mnemonic);
        let record = parse(mnemonic, text).unwrap_or_else(|why| panic!("{mnemonic} {text}: the record {why}"));
        assert_eq!(record.text(kind), canonical, "{mnemonic} {text}");
        assert_eq!(parse(mnemonic, canonical).as_ref(), Ok(&record), "{mnemonic} {canonical}");
        assert_eq!(Rdata::from_wire(kind, record.wire().to_vec()), Ok(record), "{mnemonic} {text}");
    }
}

#[test]
fn long_strings_are_split_after_255_bytes() {
    for (length, lengths) in [(255, vec![255]), (256, vec![255, 1]), (600, vec![255, 255, 90])] {
        let text = parse("TXT", &format!("\"{}\"", "é".repeat(length / 2) + &"x".repeat(length % 2))).unwrap();
        let strings: Vec<_> = text.wire().iter().copied().enumerate().filter(|(at, _)| at % 256 == 0).collect();
        assert_eq!(strings.iter().map(|(_, octet)| usize::from(*octet)).collect::<Vec<_>>(), lengths);
        assert_eq!(text.wire().len(), length + lengths.len());
    }
}

#[test]
fn invalid_data_is_formatted_in_generic_format() {
    for (mnemonic, wire) in [("A", &[192, 0, 2][..]), ("MX", &[0, 10, 1]), ("CAA", &[]), ("TXT", &[3, b'a'])] {
        let text = Rdata::new_unchecked(wire.to_vec()).text(kind(mnemonic));
        assert!(text.starts_with(&format!(r"\# {}", wire.len())), "{text}");
        assert!(Rdata::from_wire(kind(mnemonic), wire.to_vec()).is_err());
    }
}

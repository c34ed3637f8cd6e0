//! SPF checks with a real name server.

use sandbox::{DnsServer, RecordType};

use super::control_plane::BLOG;
use super::fixture::Fixture;

/// A domain, its SPF record (none if the text is empty), and the expected result for a client at 127.0.0.1.
const CASES: &[(&str, &str, &str)] = &[
    ("none", "", "none"),
    ("other-txt", "google-site-verification=x", "none"),
    ("other-version", "v=spf10 +all", "none"),
    ("pass-all", "v=spf1 +all", "pass"),
    ("pass-implicit", "v=spf1 all", "pass"),
    ("pass-ip4", "v=spf1 ip4:127.0.0.1 -all", "pass"),
    ("pass-network", "v=spf1 ip4:127.0.0.0/8 -all", "pass"),
    ("pass-case", "V=SPF1 IP4:127.0.0.1 -ALL", "pass"),
    ("pass-a", "v=spf1 a -all", "pass"),
    ("pass-a-name", "v=spf1 a:host.example -all", "pass"),
    ("pass-a-network", "v=spf1 a:neighbour.example/24 -all", "pass"),
    ("pass-mx", "v=spf1 mx -all", "pass"),
    ("pass-exists", "v=spf1 exists:%{i}.exists.example -all", "pass"),
    ("pass-local-part", "v=spf1 exists:%{l}.exists.example -all", "pass"),
    ("pass-include", "v=spf1 include:pass-ip4.example -all", "pass"),
    ("pass-redirect", "v=spf1 redirect=pass-ip4.example", "pass"),
    (
        "pass-10-lookups",
        "v=spf1 a:a1.example a:a2.example a:a3.example a:a4.example a:a5.example a:a6.example a:a7.example a:a8.example a:a9.example a:host.example -all",
        "pass",
    ),
    ("fail", "v=spf1 -all", "fail"),
    ("fail-ip4", "v=spf1 ip4:192.0.2.1 -all", "fail"),
    ("fail-ip6", "v=spf1 ip6:::1 -all", "fail"),
    ("fail-include", "v=spf1 include:fail.example -all", "fail"),
    ("fail-redirect", "v=spf1 redirect=fail.example", "fail"),
    ("softfail", "v=spf1 ~all", "softfail"),
    ("softfail-include", "v=spf1 ~include:pass-ip4.example -all", "softfail"),
    ("neutral", "v=spf1 ?all", "neutral"),
    ("neutral-default", "v=spf1 ip4:192.0.2.1", "neutral"),
    ("neutral-empty", "v=spf1", "neutral"),
    ("neutral-include", "v=spf1 ?include:pass-ip4.example -all", "neutral"),
    ("neutral-nested-include", "v=spf1 ?Include:pass-include.example -all", "neutral"),
    ("neutral-redirect", "v=spf1 redirect=neutral-redirect-2.example", "neutral"),
    ("neutral-redirect-2", "v=spf1 Redirect=neutral-nested-include.example", "neutral"),
    ("neutral-a-modifier", "v=spf1 a=host.example -all", "neutral"),
    ("neutral-mx-modifier", "v=spf1 MX=pass-mx.example -all", "neutral"),
    ("neutral-modifier-redirect", "v=spf1 redirect=neutral-a-modifier.example", "neutral"),
    ("fail-a-modifier", "v=spf1 a=a1.example -all", "fail"),
    ("pass-unknown-modifier", "v=spf1 note=host.example ip4:127.0.0.1 -all", "pass"),
    ("pass-unused-redirect", "v=spf1 +all redirect=neutral-nested-include.example", "pass"),
    ("permerror-mechanism", "v=spf1 foo:bar -all", "permerror"),
    ("permerror-ip4", "v=spf1 ip4:127.0.0.256 -all", "permerror"),
    ("permerror-include", "v=spf1 include:none.example -all", "permerror"),
    ("permerror-redirect", "v=spf1 redirect=none.example", "permerror"),
    ("permerror-loop", "v=spf1 include:permerror-loop.example -all", "permerror"),
    (
        "permerror-11-lookups",
        "v=spf1 a:a0.example a:a1.example a:a2.example a:a3.example a:a4.example a:a5.example a:a6.example a:a7.example a:a8.example a:a9.example a:host.example -all",
        "permerror",
    ),
    ("temperror-include", "v=spf1 include:lame.example -all", "temperror"),
    ("temperror-a", "v=spf1 a:lame.example -all", "temperror"),
];

fn publish(dns: &DnsServer) {
    for (domain, record, _) in CASES.iter().filter(|(_, record, _)| !record.is_empty()) {
        dns.set(&format!("{domain}.example"), RecordType::TXT, &[record]);
    }
    for name in ["pass-a.example", "host.example", "127.0.0.1.exists.example", "ada.exists.example"] {
        dns.set(name, RecordType::A, &["127.0.0.1"]);
    }
    dns.set("neighbour.example", RecordType::A, &["127.0.0.200"]);
    dns.set("pass-mx.example", RecordType::MX, &["20 host.example", "10 neighbour.example"]);
    for number in 0..10 {
        dns.set(&format!("a{number}.example"), RecordType::A, &["192.0.2.1"]);
    }
    dns.set_lame("lame.example");
    dns.set("two.example", RecordType::TXT, &["v=spf1 +all", "v=spf1 -all"]);
    dns.set("invalid-and-other.example", RecordType::TXT, &["v=spf1 foo:bar", "other"]);
    dns.set_strings("split.example", &[b"v=spf1 ip4:127.", b"0.0.1 -all"]);
    dns.set("client.example", RecordType::TXT, &["v=spf1 ip4:127.0.0.1 -all"]);
}

#[tokio::test]
async fn results_are_those_of_the_rules() {
    let fixture = Fixture::start().await;
    publish(&fixture.dns);
    let more = [
        ("two", "", "permerror"),
        ("invalid-and-other", "", "permerror"),
        ("split", "", "pass"),
        ("lame", "", "temperror"),
        ("below.lame", "", "temperror"),
    ];
    let mut client = fixture.greet().await;
    for (domain, record, expected) in CASES.iter().chain(&more) {
        let from = format!("ada@{domain}.example");
        client.mail(&from, &[&format!("a@{BLOG}")], "Subject: s\r\n\r\n").await;
        let received = fixture.drain().await.remove(0);
        assert_eq!(received.mail.spf, *expected, "{domain}: {record}");
        let field = format!(";\r\n\tspf={expected} smtp.mailfrom={domain}.example\r\nReceived:");
        assert!(received.raw.contains(&field), "{}", received.raw);
    }
    assert!(CASES.len() + more.len() >= 40);
}

#[tokio::test]
async fn null_sender_is_checked_by_ehlo() {
    let fixture = Fixture::start().await;
    publish(&fixture.dns);
    let mut client = fixture.greet().await;
    for (ehlo, result) in [
        ("client.example", "pass"),
        ("fail.example", "fail"),
        ("localhost", "none"),
        ("[127.0.0.1]", "none"),
        ("a_b.example", "none"),
    ] {
        client.command(&format!("EHLO {ehlo}")).await;
        client.mail("", &[&format!("a@{BLOG}")], "Subject: s\r\n\r\n").await;
        let received = fixture.drain().await.remove(0);
        assert_eq!(received.mail.spf, result, "{ehlo}");
        let helo = if ehlo.starts_with('[') { format!("\"{ehlo}\"") } else { ehlo.to_owned() };
        assert!(received.raw.contains(&format!("\tspf={result} smtp.helo={helo}\r\n")), "{}", received.raw);
    }
}

#[tokio::test]
async fn a_name_server_that_does_not_respond_is_a_temporary_error() {
    let fixture = Fixture::start_with(|limits| limits.timeouts.spf = std::time::Duration::from_millis(200)).await;
    fixture.dns.inject(Some(sandbox::DnsFault::Silent));
    let mut client = fixture.greet().await;
    client.mail("x@pass.example", &[&format!("a@{BLOG}")], "Subject: s\r\n\r\n").await;
    assert_eq!(fixture.drain().await[0].mail.spf, "temperror");
    fixture.dns.inject(Some(sandbox::DnsFault::Refused));
    client.mail("x@other.example", &[&format!("a@{BLOG}")], "Subject: s\r\n\r\n").await;
    assert_eq!(fixture.drain().await[0].mail.spf, "temperror");
}

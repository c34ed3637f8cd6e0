//! `svc zones`.

use sandbox::{DnsServer, RecordType};
use serde_json::Value;

use crate::support::{CommandResult, Machine, Platform};

const NAMESERVERS: (&str, &str) = ("SVC_NAMESERVERS", "ns1.svc.example,ns2.svc.example");

/// Returns a platform that hosts zones, and the machine of Ada with the zone `example.org`.
async fn setup() -> (Platform, Machine) {
    let platform = Platform::with(&[(NAMESERVERS.0, NAMESERVERS.1.to_owned())]).await;
    let ada = platform.ada();
    zones(&ada, &["create", "Example.org"]).succeeds().stderr_contains("Set these nameservers at the registrar");
    (platform, ada)
}

fn zones(machine: &Machine, arguments: &[&str]) -> CommandResult {
    machine.svc(&[&["zones"], arguments, &["--org", "ada"]].concat())
}

/// Returns the lines of stdout as words.
fn lines(result: &CommandResult) -> Vec<Vec<&str>> {
    result.out.lines().map(|line| line.split_whitespace().collect()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_is_shown_listed_and_deleted() {
    let (_platform, ada) = setup().await;
    let shown = zones(&ada, &["show", "example.org"]).succeeds();
    for line in
        [&["name", "example.org"][..], &["nameservers", "ns1.svc.example,", "ns2.svc.example"], &["rrsets", "2"]]
    {
        assert!(lines(&shown).contains(&line.to_vec()), "{line:?}: {shown:?}");
    }
    let listed = zones(&ada, &["list"]).succeeds();
    assert_eq!(lines(&listed)[1][..2], ["example.org", "2"]);
    assert_eq!(ada.json(&["zones", "list", "--org", "ada"])["items"][0]["name"], "example.org");
    zones(&ada, &["create", "co.uk"]).fails(1).stderr_contains("name: ");

    zones(&ada, &["delete", "example.org"]).fails(2).stderr_contains("--yes");
    assert_eq!(ada.json(&["zones", "delete", "example.org", "--yes", "--org", "ada"]), Value::Null);
    zones(&ada, &["show", "example.org"]).fails(5);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_set_listed_and_deleted() {
    let (_platform, ada) = setup().await;
    let set = zones(&ada, &["records", "set", "example.org", "@", "mx", "10 mail", "--ttl", "3600"]).succeeds();
    let mx = ["example.org", "MX", "3600", "10", "mail.example.org.", "–"];
    assert_eq!(lines(&set)[1], mx);
    zones(&ada, &["records", "set", "example.org", "www", "A", "192.0.2.1", "192.0.2.2"]).succeeds();
    for (text, stored) in [
        ("v=spf1 mx -all", r#""v=spf1 mx -all""#),
        ("v=DMARC1; p=none", r#""v=DMARC1; p=none""#),
        (r#""a b" c"#, r#""a b" "c""#),
    ] {
        let txt = ["zones", "records", "set", "example.org", "@", "txt", text, "--org", "ada"];
        assert_eq!(ada.json(&txt)["records"][0], stored);
    }
    let listed = zones(&ada, &["records", "list", "example.org"]).succeeds();
    let www = ["www.example.org", "A", "300", "192.0.2.2", "–"];
    for line in [&mx[..], &www, &["example.org", "NS", "3600", "ns1.svc.example.", "system"]] {
        assert!(lines(&listed).contains(&line.to_vec()), "{line:?}: {listed:?}");
    }
    let refused = zones(&ada, &["records", "set", "example.org", "www", "A", "192.0.2.1", "192.0.2.256"]).fails(1);
    refused.stderr_contains("records[1]: ").stderr_contains("code bad_request");
    zones(&ada, &["records", "delete", "example.org", "@", "NS"]).fails(1).stderr_contains("code managed_rrset");
    zones(&ada, &["records", "delete", "example.org", "@", "mx"]).succeeds().stderr_contains("deleted @ MX");
    zones(&ada, &["records", "delete", "example.org", "@", "MX"]).fails(5);
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_file_is_imported_after_a_confirmation_and_exported() {
    let (_platform, ada) = setup().await;
    zones(&ada, &["records", "set", "example.org", "gone", "A", "192.0.2.1"]).succeeds();
    ada.write("zone", "www 300 IN A 192.0.2.1\nmail 60 IN A 192.0.2.25\n");
    let preview = zones(&ada, &["import", "example.org", "zone", "--dry-run"]).succeeds();
    for line in [
        ["added", "www.example.org", "A", "300", "192.0.2.1"],
        ["removed", "gone.example.org", "A", "300", "192.0.2.1"],
    ] {
        assert!(lines(&preview).contains(&line.to_vec()), "{line:?}: {preview:?}");
    }
    let unconfirmed = zones(&ada, &["import", "example.org", "zone"]).fails(2);
    unconfirmed.stderr_contains("gone.example.org").stderr_contains("nothing was changed: confirm with --yes");
    let imported = zones(&ada, &["import", "example.org", "zone", "--yes"]).succeeds();
    imported.stderr_contains("removed").stderr_contains("example.org has 4 rrsets");

    let exported = zones(&ada, &["export", "example.org"]).succeeds().out;
    assert!(exported.contains("mail\t60\tIN\tA\t192.0.2.25\n"), "{exported}");
    let again = ["zones", "import", "example.org", "-", "--dry-run", "--org", "ada"];
    assert_eq!(ada.svc_with_stdin(&exported, &again).succeeds().out, "no changes\n");
    let document = ada.json(&["zones", "import", "example.org", "zone", "--yes", "--org", "ada"]);
    assert_eq!(document["rrsetCount"], 4);

    ada.write("broken", "www A 192.0.2.1\nmail A 192.0.2.300\n");
    zones(&ada, &["import", "example.org", "broken", "--yes"]).fails(1).stderr_contains("  line 2: ");
    zones(&ada, &["import", "example.org", "missing"]).fails(1).stderr_contains("missing: No such file");
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_is_turned_on_and_off() {
    let (_platform, ada) = setup().await;
    let status = zones(&ada, &["dnssec", "status", "example.org"]).succeeds();
    assert_eq!(lines(&status)[..2], [["state", "off"], ["DS", "–"]]);
    let on = zones(&ada, &["dnssec", "on", "example.org"]).succeeds();
    on.stderr_contains("`svc zones dnssec status example.org` shows the DS records");
    assert_eq!(lines(&on)[0], ["state", "signing"]);
    let status = zones(&ada, &["dnssec", "status", "example.org"]).succeeds();
    status.stderr_contains("has not checked the signer").stderr_contains("`svc zones dnssec report example.org`");

    let record = format!("36923 13 2 {}", "03C3".repeat(16));
    zones(&ada, &["dnssec", "report", "example.org", "36923 13"]).fails(2).stderr_contains("the digest type is not");
    let reported = zones(&ada, &["dnssec", "report", "example.org", &record]).succeeds().out;
    assert!(reported.contains("ds_pending") && reported.contains(&record), "{reported}");
    let status = ada.json(&["zones", "dnssec", "status", "example.org", "--org", "ada"]);
    assert_eq!((&status["state"], &status["ds"][0]["keyTag"]), (&"ds_pending".into(), &36923.into()));
    zones(&ada, &["dnssec", "off", "example.org"]).fails(2).stderr_contains("nothing was changed: confirm with --yes");
    let off = zones(&ada, &["dnssec", "off", "example.org", "--yes"]).succeeds();
    assert_eq!(lines(&off), [["state", "off"], ["DS", "–"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_of_a_domain_takes_over_its_zone() {
    let dns = DnsServer::start().await;
    let settings = [(NAMESERVERS.0, NAMESERVERS.1.to_owned()), ("SVC_DNS_RESOLVER", dns.address().to_string())];
    let platform = Platform::with(&settings).await;
    zones(&platform.ada(), &["create", "example.org"]).succeeds();
    let grace = Machine::new(&platform.api);
    grace.svc(&["login", "--dev", "grace"]).succeeds();
    let create = ["zones", "create", "example.org", "--org", "grace"];
    let refused = grace.svc(&create).fails(1);
    refused.stderr_contains("code zone_taken").stderr_contains("publish the TXT record");
    let record = refused.err.lines().find_map(|line| line.split_once("_svc-verify.example.org TXT ")).unwrap();
    dns.set("_svc-verify.example.org", RecordType::TXT, &[record.1]);
    grace.svc(&create).succeeds();
    assert_eq!(grace.json(&["zones", "list", "--org", "grace"])["items"][0]["name"], "example.org");
}

//! Unmodified PowerDNS clients. `cargo xtask test` installs them and sets `SVC_TEST_OCTODNS`, `SVC_TEST_LEGO` and
//! `SVC_TEST_PEBBLE`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use sandbox::{DnsServer, RecordType};
use serde_json::json;
use tokio::process::Command;

use super::{PdnsClient, ZONES, setup, zone_rrsets};
use crate::support::{Folder, Pebble, external_program};

/// All record types that both octodns and the platform support.
const RECORDS: &str = r"
'':
  - {type: A, values: [192.0.2.1, 192.0.2.2]}
  - {type: NS, values: [ns1.svc.example., ns2.svc.example.]}
  - {type: MX, values: [{preference: 10, exchange: mail.octo.example.}]}
  - {type: TXT, values: ['v=spf1 -all', 'v=DKIM1\; k=rsa\; p=LONG']}
  - {type: CAA, values: [{flags: 0, tag: issue, value: ca.example}]}
www: {type: CNAME, value: octo.example.}
sub: {type: NS, ttl: 600, values: [ns.example.net.]}
'*.wild': {type: AAAA, ttl: 60, value: '2001:DB8::1'}
_sip._tcp: {type: SRV, values: [{priority: 1, weight: 2, port: 5060, target: sip.octo.example.}]}
_443._tcp: {type: TLSA, values: [{certificate_usage: 3, selector: 1, matching_type: 1, certificate_association_data: DIGEST}]}
svc: {type: HTTPS, values: [{svcpriority: 1, targetname: ., svcparams: {alpn: [h2, h3]}}]}
ptr: {type: PTR, value: host.octo.example.}
loc: {type: LOC, values: [{lat_degrees: 52, lat_minutes: 22, lat_seconds: 23.5, lat_direction: N, long_degrees: 4,
  long_minutes: 53, long_seconds: 32, long_direction: E, altitude: -2, size: 1, precision_horz: 10000, precision_vert: 10}]}
ssh: {type: SSHFP, values: [{algorithm: 4, fingerprint_type: 2, fingerprint: DIGEST}]}
_ftp._tcp: {type: URI, values: [{priority: 1, weight: 2, target: 'https://example.net/x'}]}
naptr: {type: NAPTR, values: [{order: 1, preference: 2, flags: S, service: SIP+D2U, regexp: '', replacement: _sip._udp.octo.example.}]}
";

const OCTODNS: &str = r"
providers:
  config: {class: octodns.provider.yaml.YamlProvider, directory: FOLDER, default_ttl: 3600, enforce_order: false}
  powerdns: {class: octodns_powerdns.PowerDnsProvider, host: 127.0.0.1, port: PORT, api_key: env/POWERDNS_API_KEY, notify: true}
zones:
  octo.example.: {sources: [config], targets: [powerdns]}
";

/// Runs octodns, which must succeed, and returns its output.
async fn octodns(sync: &Path, config: &Path, tool: &PdnsClient, arguments: &[&str]) -> String {
    let mut run = Command::new(sync);
    run.arg("--config-file").arg(config).args(arguments).env("POWERDNS_API_KEY", tool.key.as_deref().unwrap());
    let output = run.kill_on_drop(true).output().await.unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn octodns_applies_its_plan_and_is_then_in_sync() {
    let Some(sync) = external_program("SVC_TEST_OCTODNS") else { return };
    let (app, _ada, tool) = setup().await;
    let folder = Folder::new("octodns");
    let records = RECORDS.replace("LONG", &"x".repeat(400)).replace("DIGEST", &"ab".repeat(32));
    folder.write("octo.example.yaml", &records);
    let port = app.base.rsplit(':').next().unwrap();
    let config = OCTODNS.replace("FOLDER", &folder.path.display().to_string()).replace("PORT", port);
    let config = folder.write("octodns.yaml", config);
    let run = async |arguments: &[&str]| octodns(&sync, &config, &tool, arguments).await;

    let planned = run(&[]).await;
    assert!(planned.contains("Creates=16, Updates=0, Deletes=0"), "{planned}");
    tool.get(&format!("{ZONES}/octo.example.")).await.expect(404);
    let applied = run(&["--doit"]).await;
    assert!(applied.contains("16 total changes"), "{applied}");
    assert_eq!(zone_rrsets(&tool, "octo.example.").await.len(), 16);
    let again = run(&["--doit"]).await;
    assert!(again.contains("No changes were planned"), "{again}");

    // The run contains an update and a deletion, and a name whose type changes.
    let records = records.replace("192.0.2.2]", "192.0.2.3]").replace("ptr: {type: PTR", "ptr: {type: CNAME");
    let records: Vec<&str> = records.lines().filter(|line| !line.starts_with("svc:")).collect();
    folder.write("octo.example.yaml", records.join("\n"));
    let planned = run(&["--doit"]).await;
    assert!(planned.contains("Creates=1, Updates=1, Deletes=2"), "{planned}");
    let rrsets = zone_rrsets(&tool, "octo.example.").await;
    let apex = rrsets.iter().find(|(name, kind, ..)| name == "octo.example." && kind == "A").unwrap();
    assert_eq!((rrsets.len(), &apex.3), (15, &vec!["192.0.2.1".to_owned(), "192.0.2.3".to_owned()]));
    let again = run(&["--doit"]).await;
    assert!(again.contains("No changes were planned"), "{again}");
}

/// Copies the zone's TXT records to a DNS server, as the secondaries would serve them. Collects them in `seen`.
async fn serve_txt(tool: PdnsClient, dns: &DnsServer, seen: &mut BTreeMap<String, (u64, Vec<String>)>) {
    dns.set("octo.example", RecordType::SOA, &["ns1.svc.example. hostmaster.octo.example. 1"]);
    let mut served: Vec<String> = Vec::new();
    loop {
        let now: Vec<_> =
            zone_rrsets(&tool, "octo.example.").await.into_iter().filter(|(_, kind, ..)| kind == "TXT").collect();
        for deleted in served.drain(..).filter(|name| now.iter().all(|(existing, ..)| existing != name)) {
            dns.set(&deleted, RecordType::TXT, &[]);
        }
        for (name, _, ttl, contents) in now {
            let texts: Vec<&str> = contents.iter().map(|content| content.trim_matches('"')).collect();
            dns.set(&name, RecordType::TXT, &texts);
            seen.insert(name.clone(), (ttl, contents));
            served.push(name);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lego_obtains_a_certificate_and_cleans_up() {
    let Some(lego) = external_program("SVC_TEST_LEGO") else { return };
    let (app, _ada, tool) = setup().await;
    tool.post(ZONES, json!({ "name": "octo.example." })).await.expect(201);
    let Some(mut pebble) = Pebble::start().await else { return };
    let (dns, folder) = (pebble.dns.clone(), pebble.folder.path.clone());
    let mut run = Command::new(lego);
    run.args(["--server", &pebble.directory, "--accept-tos", "--email", "ada@octo.example", "--dns", "pdns"]);
    run.args(["--dns.disable-cp", "--dns.resolvers", &dns.address().to_string()]);
    run.args(["-d", "host.octo.example", "-d", "*.octo.example"]).arg("--path").arg(&folder).arg("run");
    run.env("LEGO_CA_CERTIFICATES", &pebble.certificate).env("PDNS_API_URL", &app.base);
    run.env("PDNS_API_KEY", tool.key.as_deref().unwrap()).env("PDNS_POLLING_INTERVAL", "1");
    let mut seen = BTreeMap::new();
    let output = tokio::select! {
        output = run.kill_on_drop(true).output() => output.unwrap(),
        () = serve_txt(tool.clone(), &dns, &mut seen) => unreachable!("serve_txt does not return"),
    };
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(folder.join("certificates/host.octo.example.crt").is_file(), "{text}");
    pebble.stop().await;

    let names: Vec<&str> = seen.keys().map(String::as_str).collect();
    assert_eq!(names, ["_acme-challenge.host.octo.example.", "_acme-challenge.octo.example."]);
    assert!(seen.values().all(|(ttl, contents)| *ttl == 120 && contents.len() == 1), "{seen:?}");
    assert_eq!(zone_rrsets(&tool, "octo.example.").await.len(), 1, "{text}");
    let events = app.db_rows("SELECT data FROM store.audit WHERE event = 'dns.rrset.patch' ORDER BY id").await;
    let mut changes: Vec<&str> = events.iter().map(|event| event["data"]["rrsets"][0].as_str().unwrap()).collect();
    changes.sort_unstable();
    let [one, other] = ["_acme-challenge.host.octo.example TXT", "_acme-challenge.octo.example TXT"];
    let expected = [("+", one), ("+", other), ("-", one), ("-", other)].map(|(sign, rrset)| format!("{sign} {rrset}"));
    assert_eq!(changes, expected);
}

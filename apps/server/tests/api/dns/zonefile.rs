//! Zones as files.

use reqwest::Method;
use serde_json::{Value, json};

use super::{ZONE, content, put, serial, world};
use crate::kit::{Answer, Caller};

async fn import(caller: &Caller, query: &str, text: &str) -> Answer {
    let (path, text) = (format!("{ZONE}/zonefile{query}"), text.to_owned());
    caller.send(Method::PUT, &path, |request| request.header("content-type", "text/dns").body(text)).await
}

const FILE: &str = "\
$ORIGIN example.org.
$TTL 1h
@       SOA ns.old.example. admin.old.example. 7 3600 600 ( 1209600
            300 ) ; of the nameserver before
        172800 NS  ns.old.example.
        MX  10 mail
mail    60 IN A 192.0.2.25
www     CNAME mail
_dmarc  TXT \"v=DMARC1; p=none\"
";

#[tokio::test(flavor = "multi_thread")]
async fn a_file_replaces_what_is_not_managed_in_one_step() {
    let (app, ada) = world().await;
    put(&ada, "gone/A", &["192.0.2.1"]).await;
    put(&ada, "www/A", &["192.0.2.1"]).await;
    let before = serial(&ada).await;
    let would = import(&ada, "?dryRun=true", FILE).await.expect(200).clone();
    let count = |of: &Value, list: &str| of[list].as_array().unwrap().len();
    assert_eq!((count(&would, "added"), count(&would, "changed"), count(&would, "removed")), (4, 0, 2));
    assert_eq!(serial(&ada).await, before);

    let done = import(&ada, "", FILE).await;
    assert_eq!(done.header("etag"), format!("\"{}\"", before + 1));
    assert_eq!(done.expect(200)["rrsetCount"], 6);
    assert_eq!(
        content(&ada).await,
        [
            "example.org MX 3600 10 mail.example.org.",
            "_dmarc.example.org TXT 3600 \"v=DMARC1; p=none\"",
            "mail.example.org A 60 192.0.2.25",
            "www.example.org CNAME 3600 mail.example.org.",
        ]
    );
    // What is exported is imported without a change.
    let exported = ada.get(&format!("{ZONE}/zonefile")).await;
    exported.expect(200);
    assert_eq!(exported.header("content-type"), "text/dns");
    let text = String::from_utf8(exported.bytes).unwrap();
    import(&ada, "?dryRun=false", &text).await.expect(200);
    assert_eq!(serial(&ada).await, before + 1);
    let events = app.db_audit("ada").await;
    assert_eq!(events.iter().filter(|event| *event == "dns.zone.import").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_faulty_file_changes_nothing_and_its_lines_are_named() {
    let (_app, ada) = world().await;
    put(&ada, "www/A", &["192.0.2.1"]).await;
    let before = serial(&ada).await;
    let text = "www A 192.0.2.1\nmail A 192.0.2.300\n$INCLUDE /etc/passwd\nother.example. A 192.0.2.1\nx CNAME a\nx A 192.0.2.1\n";
    let refused = import(&ada, "", text).await;
    let lines = refused.refused(400, "bad_request")["details"]["lines"].clone();
    let numbers: Vec<u64> = lines.as_array().unwrap().iter().map(|line| line["line"].as_u64().unwrap()).collect();
    assert!(numbers.starts_with(&[2, 3, 4]) && numbers.iter().any(|line| [5, 6].contains(line)), "{lines}");
    assert_eq!((serial(&ada).await, content(&ada).await.len()), (before, 1));
    import(&ada, "?dryRun=maybe", "").await.refused(400, "bad_request");
    ada.put(&format!("{ZONE}/zonefile"), json!({})).await.refused(415, "unsupported_media_type");
    let path = format!("{ZONE}/zonefile");
    let stale = |request: reqwest::RequestBuilder| {
        request.header("content-type", "text/dns").header("if-match", "\"1\"").body("")
    };
    ada.send(Method::PUT, &path, stale).await.refused(412, "precondition_failed");
    let large = "; ".repeat(5 * 1024 * 1024);
    import(&ada, "", &large).await.refused(413, "payload_too_large");
    let path = "/v1/orgs/ada/dns/zones/other.example/zonefile";
    let send = |request: reqwest::RequestBuilder| request.header("content-type", "text/dns").body("?");
    ada.send(Method::PUT, path, send).await.refused(404, "not_found");
    ada.get(path).await.refused(404, "not_found");
}

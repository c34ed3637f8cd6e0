//! Import and export of zone files.

use reqwest::Method;
use serde_json::json;

use super::{ZONE, put, serial, setup, unmanaged};
use crate::support::{ApiResponse, Caller};

async fn import(caller: &Caller, query: &str, text: &str) -> ApiResponse {
    let (path, text) = (format!("{ZONE}/zonefile{query}"), text.to_owned());
    caller.send(Method::PUT, &path, |request| request.header("content-type", "text/dns").body(text)).await
}

const FILE: &str = "\
$ORIGIN example.org.
$TTL 1h
@       SOA ns.old.example. admin.old.example. 7 3600 600 ( 1209600
            300 ) ; from the previous nameserver
        172800 NS  ns.old.example.
        MX  10 mail
mail    60 IN A 192.0.2.25
www     CNAME mail
_dmarc  TXT \"v=DMARC1; p=none\"
";

#[tokio::test(flavor = "multi_thread")]
async fn import_replaces_all_unmanaged_rrsets_atomically() {
    let (app, ada) = setup().await;
    put(&ada, "gone/A", &["192.0.2.1"]).await;
    put(&ada, "www/A", &["192.0.2.1"]).await;
    let before = serial(&ada).await;
    let preview = import(&ada, "?dryRun=true", FILE).await.expect(200).clone();
    let count = |list: &str| preview[list].as_array().unwrap().len();
    assert_eq!((count("added"), count("changed"), count("removed")), (4, 0, 2));
    assert_eq!(serial(&ada).await, before);

    let imported = import(&ada, "", FILE).await;
    assert_eq!(imported.header("etag"), format!("\"{}\"", before + 1));
    assert_eq!(imported.expect(200)["rrsetCount"], 6);
    assert_eq!(
        unmanaged(&ada).await,
        [
            "example.org MX 3600 10 mail.example.org.",
            "_dmarc.example.org TXT 3600 \"v=DMARC1; p=none\"",
            "mail.example.org A 60 192.0.2.25",
            "www.example.org CNAME 3600 mail.example.org.",
        ]
    );
    // Importing the export is a no-op.
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
async fn invalid_zone_file_is_rejected_with_its_line_numbers() {
    let (_app, ada) = setup().await;
    put(&ada, "www/A", &["192.0.2.1"]).await;
    let before = serial(&ada).await;
    let text = "www A 192.0.2.1\nmail A 192.0.2.300\n$INCLUDE /etc/passwd\nother.example. A 192.0.2.1\nx CNAME a\nx A 192.0.2.1\n";
    let refused = import(&ada, "", text).await;
    let lines = refused.expect_error(400, "bad_request")["details"]["lines"].clone();
    let numbers: Vec<u64> = lines.as_array().unwrap().iter().map(|line| line["line"].as_u64().unwrap()).collect();
    assert!(numbers.starts_with(&[2, 3, 4]) && numbers.iter().any(|line| [5, 6].contains(line)), "{lines}");
    assert_eq!((serial(&ada).await, unmanaged(&ada).await.len()), (before, 1));
    let latin = b"www A 192.0.2.1\ncaf\xe9 A 192.0.2.1\ngr\xc3\xbcn A 192.0.2.1\n\xff\n\xe9".to_vec();
    let path = format!("{ZONE}/zonefile");
    let send = |request: reqwest::RequestBuilder| request.header("content-type", "text/dns").body(latin);
    let refused = ada.send(Method::PUT, &path, send).await;
    let message = "the line is not UTF-8 text";
    let expected = [2, 4, 5].map(|line| json!({ "line": line, "message": message }));
    assert_eq!(refused.expect_error(400, "bad_request")["details"]["lines"], json!(expected));
    import(&ada, "?dryRun=maybe", "").await.expect_error(400, "bad_request");
    ada.put(&format!("{ZONE}/zonefile"), json!({})).await.expect_error(415, "unsupported_media_type");
    let path = format!("{ZONE}/zonefile");
    let stale = |request: reqwest::RequestBuilder| {
        request.header("content-type", "text/dns").header("if-match", "\"1\"").body("")
    };
    ada.send(Method::PUT, &path, stale).await.expect_error(412, "precondition_failed");
    let large = "; ".repeat(5 * 1024 * 1024);
    import(&ada, "", &large).await.expect_error(413, "payload_too_large");
    let path = "/v1/orgs/ada/dns/zones/other.example/zonefile";
    let send = |request: reqwest::RequestBuilder| request.header("content-type", "text/dns").body("?");
    ada.send(Method::PUT, path, send).await.expect_error(404, "not_found");
    ada.get(path).await.expect_error(404, "not_found");
}

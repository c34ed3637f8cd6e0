//! Single and batch changes of rrsets.

use reqwest::Method;
use serde_json::{Value, json};

use super::{ZONE, put, serial, setup, unmanaged};

fn addresses(count: u8) -> Vec<String> {
    (0..count).map(|number| format!("192.0.2.{number}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn put_replaces_an_rrset_and_returns_its_canonical_form() {
    let (app, ada) = setup().await;
    let rrset = put(&ada, "WWW/AAAA", &["2001:DB8::1", "2001:db8:0:0::1", "2001:db8::2"]).await;
    assert_eq!(
        rrset,
        json!({ "name": "www.example.org", "type": "AAAA", "ttl": 300,
                "records": ["2001:db8::1", "2001:db8::2"], "managed_by": null })
    );
    // Relative and absolute names denote the same rrset.
    put(&ada, "www.example.org/AAAA", &["2001:db8::3"]).await;
    put(&ada, "www.example.org./AAAA", &["2001:db8::4"]).await;
    let body = json!({ "records": ["10 mail"], "ttl": 3600 });
    let mx = ada.put(&format!("{ZONE}/rrsets/@/MX"), body).await;
    assert_eq!(mx.expect(200)["records"], json!(["10 mail.example.org."]));
    assert_eq!(mx.header("etag"), format!("\"{}\"", serial(&ada).await));
    put(&ada, "*/TXT", &["v=spf1 \"a b\""]).await;
    assert_eq!(
        unmanaged(&ada).await,
        [
            "example.org MX 3600 10 mail.example.org.",
            "*.example.org TXT 300 \"v=spf1\" \"a b\"",
            "www.example.org AAAA 300 2001:db8::4",
        ]
    );
    let deleted = ada.delete(&format!("{ZONE}/rrsets/www/AAAA")).await;
    deleted.expect(204);
    assert_eq!(deleted.header("etag"), format!("\"{}\"", serial(&ada).await));
    for missing in ["www/AAAA", "www/FOO", "www.other.example./A"] {
        ada.delete(&format!("{ZONE}/rrsets/{missing}")).await.expect_error(404, "not_found");
    }
    let events = app.db_audit("ada").await;
    let sets = events.iter().filter(|event| *event == "dns.rrset.set").count();
    assert_eq!((sets, events.last().unwrap().as_str()), (5, "dns.rrset.delete"));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_rrsets_are_rejected_with_the_invalid_field() {
    let (_app, ada) = setup().await;
    let before = serial(&ada).await;
    for (rrset, body, path) in [
        ("www/A", json!({ "records": ["192.0.2.1", "192.0.2.256"] }), "records[1]"),
        ("www/A", json!({ "records": ["192.0.2.1\n@ A 192.0.2.2"] }), "records[0]"),
        ("www/A", json!({ "records": [] }), "records"),
        ("www/A", json!({ "records": ["192.0.2.1"], "ttl": 29 }), "ttl"),
        ("www/A", json!({ "records": ["192.0.2.1"], "ttl": 86401 }), "ttl"),
        ("www/A", json!({ "records": "192.0.2.1" }), "records"),
        ("www/A", json!({ "ttl": 300 }), "records"),
        ("www/A", json!({ "records": ["192.0.2.1"], "name": "x" }), "name"),
        ("www/FOO", json!({ "records": ["x"] }), "type"),
        ("www/a", json!({ "records": ["192.0.2.1"] }), "type"),
        ("a..b/A", json!({ "records": ["192.0.2.1"] }), "name"),
        ("www.other.example./A", json!({ "records": ["192.0.2.1"] }), "name"),
        ("www/CNAME", json!({ "records": ["a.example.", "b.example."] }), "records"),
        ("www/CAA", json!({ "records": ["0 issue"] }), "records[0]"),
        ("www/SRV", json!({ "records": ["1 2 3"] }), "records[0]"),
    ] {
        let refused = ada.put(&format!("{ZONE}/rrsets/{rrset}"), body.clone()).await;
        let fields = refused.expect_error(400, "bad_request")["details"]["fields"].clone();
        assert_eq!(fields[0]["path"], path, "{rrset} {body}: {fields}");
    }
    let refused =
        ada.put(&format!("{ZONE}/rrsets/a..b/A"), json!({ "records": ["192.0.2.256", "192.0.2.1", "x"] })).await;
    let fields = refused.expect_error(400, "bad_request")["details"]["fields"].as_array().unwrap();
    let paths: Vec<&str> = fields.iter().map(|field| field["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["name", "records[0]", "records[2]"]);
    let many = json!({ "records": addresses(101) });
    ada.put(&format!("{ZONE}/rrsets/www/A"), many).await.expect_error(400, "bad_request");
    assert_eq!(serial(&ada).await, before);
    for body in [json!({ "records": addresses(100), "ttl": 30 }), json!({ "records": addresses(100), "ttl": 86_400 })] {
        let rrset = ada.put(&format!("{ZONE}/rrsets/www/A"), body.clone()).await.expect(200).clone();
        assert_eq!((&rrset["records"], &rrset["ttl"]), (&body["records"], &body["ttl"]));
    }
    ada.put("/v1/orgs/ada/dns/zones/other.example/rrsets/www/A", json!({ "records": ["192.0.2.1"] }))
        .await
        .expect_error(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn name_in_a_path_is_decoded_once() {
    let (_app, ada) = setup().await;
    for (name, shown) in [
        ("a%2Bb", r"a\+b.example.org"),
        ("a%2bb", r"a\+b.example.org"),
        ("a+b", r"a\+b.example.org"),
        ("50%25", r"50\%.example.org"),
        ("50%2541", r"50\%41.example.org"),
        ("a%2522", r"a\%22.example.org"),
    ] {
        assert_eq!(put(&ada, &format!("{name}/A"), &["192.0.2.1"]).await["name"], shown, "{name}");
    }
    assert_eq!(unmanaged(&ada).await.len(), 4);
    ada.delete(&format!("{ZONE}/rrsets/a%2Bb/A")).await.expect(204);
    ada.delete(&format!("{ZONE}/rrsets/a+b/A")).await.expect_error(404, "not_found");
    // A proxy may decode an escaped slash, so the body of a patch names such an rrset (RFC 2317).
    let path = format!("{ZONE}/rrsets/0%2F25/NS");
    let refused = [
        ada.put(&path, json!({ "records": ["ns.elsewhere.example."] })).await,
        ada.delete(&path.replace("%2F", "%2f")).await,
    ];
    for refused in refused {
        let field = refused.expect_error(400, "bad_request")["details"]["fields"][0].clone();
        assert_eq!(field["path"], "name");
        assert!(field["message"].as_str().unwrap().contains("must not contain a slash (%2F)"), "{field}");
        assert!(field["message"].as_str().unwrap().contains("PATCH"), "{field}");
    }
    let patch = json!({ "rrsets": [{ "name": "0/25", "type": "NS", "records": ["ns.elsewhere.example."] }] });
    let patched = ada.patch(&format!("{ZONE}/rrsets"), patch).await.expect(200).clone();
    assert_eq!(patched["added"][0]["name"], "0/25.example.org");
}

#[tokio::test(flavor = "multi_thread")]
async fn managed_rrsets_and_cname_conflicts_are_rejected() {
    let (_app, ada) = setup().await;
    for rrset in ["@/NS", "@/SOA", "example.org/SOA"] {
        let body = json!({ "records": ["ns1.elsewhere.example."] });
        let refused = ada.put(&format!("{ZONE}/rrsets/{rrset}"), body).await;
        assert_eq!(refused.expect_error(409, "managed_rrset")["details"]["managed_by"], "system");
        ada.delete(&format!("{ZONE}/rrsets/{rrset}")).await.expect_error(409, "managed_rrset");
    }
    let alias = json!({ "records": ["elsewhere.example."] });
    ada.put(&format!("{ZONE}/rrsets/@/CNAME"), alias.clone()).await.expect_error(409, "cname_conflict");
    put(&ada, "a/A", &["192.0.2.1"]).await;
    ada.put(&format!("{ZONE}/rrsets/a/CNAME"), alias.clone()).await.expect_error(409, "cname_conflict");
    put(&ada, "b/CNAME", &["a"]).await;
    ada.put(&format!("{ZONE}/rrsets/b/TXT"), json!({ "records": ["x"] })).await.expect_error(409, "cname_conflict");
    put(&ada, "b/CNAME", &["c"]).await;
    // A delegation below the apex is not managed.
    put(&ada, "sub/NS", &["ns1.elsewhere.example."]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn if_match_with_a_stale_serial_is_rejected() {
    let (_app, ada) = setup().await;
    let tag = ada.get(ZONE).await.header("etag").to_owned();
    let path = format!("{ZONE}/rrsets/www/A");
    let put_if_match = |tag: &str, address: &str| {
        let (tag, body) = (tag.to_owned(), json!({ "records": [address] }));
        let (ada, path) = (ada.clone(), path.clone());
        async move { ada.send(Method::PUT, &path, |request| request.header("if-match", tag).json(&body)).await }
    };
    let first = put_if_match(&tag, "192.0.2.1").await;
    first.expect(200);
    let refused = put_if_match(&tag, "192.0.2.2").await;
    assert_eq!(refused.expect_error(412, "precondition_failed")["details"]["serial"], serial(&ada).await);
    for invalid in ["\"x\"", "W/\"1\"", "\"01\"", ""] {
        put_if_match(invalid, "192.0.2.3").await.expect_error(412, "precondition_failed");
    }
    put_if_match(&format!("\"1\", {}", first.header("etag")), "192.0.2.4").await.expect(200);
    put_if_match("*", "192.0.2.5").await.expect(200);
    let delete = ada.send(Method::DELETE, &path, |request| request.header("if-match", &tag)).await;
    delete.expect_error(412, "precondition_failed");
    // Errors that do not depend on the state come before the precondition (RFC 9110 section 13.2.1).
    let none = format!("{ZONE}/rrsets/www/NONE");
    let put =
        ada.send(Method::PUT, &none, |request| request.header("if-match", &tag).json(&json!({ "records": ["x"] })));
    put.await.expect_error(400, "bad_request");
    let delete = ada.send(Method::DELETE, &none, |request| request.header("if-match", &tag)).await;
    delete.expect_error(404, "not_found");
    let patch = json!({ "rrsets": [{ "name": "x", "type": "A", "records": ["192.0.2.1"] }] });
    let path = format!("{ZONE}/rrsets");
    let patched = ada.send(Method::PATCH, &path, |request| request.header("if-match", &tag).json(&patch)).await;
    patched.expect_error(412, "precondition_failed");
    assert_eq!(unmanaged(&ada).await, ["www.example.org A 300 192.0.2.5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn patch_changes_all_rrsets_or_none() {
    let (app, ada) = setup().await;
    put(&ada, "old/A", &["192.0.2.1"]).await;
    put(&ada, "www/A", &["192.0.2.1"]).await;
    let before = serial(&ada).await;
    let patch = |dry_run: bool| {
        json!({ "dryRun": dry_run, "rrsets": [
            // A CNAME replaces an A rrset in one request.
            { "name": "old", "type": "A", "records": [] },
            { "name": "old", "type": "CNAME", "records": ["www"] },
            { "name": "www", "type": "A", "ttl": 60, "records": ["192.0.2.9"] },
            { "name": "mail", "type": "A", "records": ["192.0.2.2"] },
            { "name": "nothing", "type": "A", "records": [] },
        ] })
    };
    let path = format!("{ZONE}/rrsets");
    let named = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|it| format!("{} {}", it["name"], it["type"]).replace('"', "")).collect()
    };
    for (dry_run, after) in [(true, before), (false, before + 1)] {
        let patched = ada.patch(&path, patch(dry_run)).await;
        assert_eq!(patched.header("etag"), format!("\"{after}\""));
        let patched = patched.expect(200);
        assert_eq!(patched["serial"], after);
        assert_eq!(named(&patched["added"]), ["mail.example.org A", "old.example.org CNAME"]);
        assert_eq!(named(&patched["changed"]), ["www.example.org A"]);
        assert_eq!(patched["changed"][0]["records"], json!(["192.0.2.9"]));
        assert_eq!(named(&patched["removed"]), ["old.example.org A"]);
        assert_eq!(serial(&ada).await, after);
    }
    // A repeated patch is a no-op.
    let again = ada.patch(&path, patch(false)).await.expect(200).clone();
    assert_eq!((&again["serial"], &again["added"]), (&json!(before + 1), &json!([])));

    // The response lists validation errors and conflicts together, except those that an invalid item may resolve.
    let faulty = json!({ "rrsets": [
        { "name": "@", "type": "NS", "records": ["ns.example."] },
        { "name": "fine", "type": "A", "records": ["192.0.2.1"] },
        { "name": "www", "type": "A", "records": ["x"] },
        { "name": "www", "type": "NONE", "records": ["x"] },
        { "name": "elsewhere.example.", "type": "A", "records": ["192.0.2.1"] },
        { "name": "fine", "type": "A", "records": ["192.0.2.2"] },
        { "name": "", "type": "A", "records": ["192.0.2.1"] },
        { "name": "short", "type": "A", "ttl": 29, "records": ["192.0.2.1"] },
        { "name": "long", "type": "A", "ttl": 86_401, "records": ["192.0.2.1"] },
        { "name": "negative", "type": "A", "ttl": -1, "records": ["192.0.2.1"] },
        { "name": "longest", "type": "A", "ttl": i64::MAX, "records": ["192.0.2.1"] },
        { "name": "many", "type": "A", "records": addresses(101) },
        { "name": "mail", "type": "CNAME", "records": ["fine"] },
    ] });
    let refused = ada.patch(&path, faulty).await;
    let items = refused.expect_error(400, "bad_request")["details"]["items"].clone();
    let indexes: Vec<u64> = items.as_array().unwrap().iter().map(|item| item["index"].as_u64().unwrap()).collect();
    assert_eq!(indexes, [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], "{items}");
    assert_eq!(items[0]["code"], "managed_rrset");
    let uncertain = json!({ "rrsets": [
        { "name": "mail", "type": "A", "ttl": 29, "records": ["192.0.2.1"] },
        { "name": "mail", "type": "CNAME", "records": ["fine"] },
        { "name": "www", "type": "CNAME", "records": ["fine"] },
    ] });
    let refused = ada.patch(&path, uncertain).await;
    let items = refused.expect_error(400, "bad_request")["details"]["items"].clone();
    let codes: Vec<_> = items.as_array().unwrap().iter().map(|item| (&item["index"], &item["code"])).collect();
    assert_eq!(codes, [(&json!(0), &json!("bad_request")), (&json!(2), &json!("cname_conflict"))]);
    let conflicts = json!({ "rrsets": [
        { "name": "fine", "type": "A", "records": ["192.0.2.1"] },
        { "name": "@", "type": "NS", "records": ["ns.example."] },
        { "name": "www", "type": "CNAME", "records": ["fine"] },
    ] });
    let refused = ada.patch(&path, conflicts).await;
    let items = refused.expect_error(409, "managed_rrset")["details"]["items"].clone();
    assert_eq!((&items[0]["code"], &items[1]["code"]), (&json!("managed_rrset"), &json!("cname_conflict")));
    let apex = json!({ "rrsets": [{ "name": "@", "type": "CNAME", "records": ["fine"] }] });
    let refused = ada.patch(&path, apex).await;
    assert_eq!(refused.expect_error(409, "cname_conflict")["details"]["items"][0]["index"], 0);
    assert_eq!(serial(&ada).await, before + 1);
    assert_eq!(app.db_audit("ada").await.last().unwrap(), "dns.rrset.patch");
}

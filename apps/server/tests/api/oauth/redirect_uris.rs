//! Redirect URIs: those that an operator can register, and those that a request may contain (RFC 8252, RFC 9700 section
//! 4.1.3, contract section 3).

use serde_json::json;

use super::kit::{clients, operator, public, register};
use crate::support::App;

const REGISTRABLE: &[&str] = &[
    "https://app.example/callback",
    "https://app.example",
    "https://app.example/",
    "https://app.example:8443/callback",
    "https://app.example/callback?tenant=1",
    "https://app.example/a%20b",
    "https://xn--bcher-kva.example/callback",
    "https://192.0.2.1/callback",
    "https://[2001:db8::1]/callback",
    "http://127.0.0.1/callback",
    "http://127.0.0.1:4000/callback",
    "http://[::1]/callback",
    "http://[::1]:4000/callback",
    "http://localhost:3000/callback",
    "com.example.app:/callback",
    "com.example.app://callback",
];

const REFUSED: &[&str] = &[
    "",
    "callback",
    "/callback",
    "//app.example/callback",
    "https:app.example/callback",
    "https:/app.example/callback",
    "https:///callback",
    "https://",
    "https://app.example/callback#",
    "https://app.example/callback#fragment",
    "com.example.app:/callback#fragment",
    "https://app.example/call back",
    " https://app.example/callback",
    "https://app.example/callback ",
    "https://app.example/callback\n",
    "https://app.example/\tcallback",
    "https://app.example/\u{7f}",
    "https://app.example\\callback",
    "https:\\\\app.example\\callback",
    "https://user@app.example/callback",
    "https://user:password@app.example/callback",
    "https://@app.example/callback",
    "https://app.example@evil.example/callback",
    "https://app.example:99999/callback",
    "https://[::1/callback",
    "https://*.app.example/callback*\u{e9}",
    "http://app.example/callback",
    "http://127.0.0.1.evil.example/callback",
    "http://localhost.evil.example/callback",
    "http://10.0.0.1/callback",
    "http://0.0.0.0/callback",
    "http://[::2]/callback",
    "myapp:/callback",
    "myapp://callback",
    "javascript:alert(1)",
    "data:text/html,x",
    "file:///callback",
    "ftp://app.example/callback",
    "ws://app.example/callback",
    "wss://app.example/callback",
    "urn:ietf:wg:oauth:2.0:oob",
    "about:blank",
    "blob:https://app.example/x",
];

/// A registered URI, a requested URI, and whether the requested one matches.
const REQUESTS: &[(&str, &str, bool)] = &[
    ("https://app.example/callback", "https://app.example/callback", true),
    ("https://app.example/callback", "https://app.example/callback/", false),
    ("https://app.example/callback", "https://app.example/callback?", false),
    ("https://app.example/callback", "https://app.example/callback?x=1", false),
    ("https://app.example/callback", "https://app.example/callback#", false),
    ("https://app.example/callback", "https://app.example/callback#x", false),
    ("https://app.example/callback", "https://app.example/Callback", false),
    ("https://app.example/callback", "https://app.example/callback2", false),
    ("https://app.example/callback", "https://app.example/call", false),
    ("https://app.example/callback", "https://app.example/x/../callback", false),
    ("https://app.example/callback", "https://app.example/./callback", false),
    ("https://app.example/callback", "https://app.example//callback", false),
    ("https://app.example/callback", "https://app.example/%63allback", false),
    ("https://app.example/callback", "https://APP.example/callback", false),
    ("https://app.example/callback", "HTTPS://app.example/callback", false),
    ("https://app.example/callback", "https://app.example:443/callback", false),
    ("https://app.example/callback", "https://app.example./callback", false),
    ("https://app.example/callback", "https://sub.app.example/callback", false),
    ("https://app.example/callback", "https://app.example.evil.example/callback", false),
    ("https://app.example/callback", "https://app.example@evil.example/callback", false),
    ("https://app.example/callback", "https://user@app.example/callback", false),
    ("https://app.example/callback", "https://evil.example/https://app.example/callback", false),
    ("https://app.example/callback", "https://evil.example\\@app.example/callback", false),
    ("https://app.example/callback", "http://app.example/callback", false),
    ("https://app.example/callback", " https://app.example/callback", false),
    ("https://app.example/callback", "https://app.example/callback\r\nx: y", false),
    ("https://app.example/callback", "javascript:alert(1)", false),
    ("https://app.example/callback?a=1", "https://app.example/callback?a=1", true),
    ("https://app.example/callback?a=1", "https://app.example/callback", false),
    ("https://app.example/callback?a=1", "https://app.example/callback?a=1&b=2", false),
    ("https://app.example", "https://app.example/", false),
    ("https://app.example:8443/callback", "https://app.example:8444/callback", false),
    ("http://127.0.0.1/callback", "http://127.0.0.1:49152/callback", true),
    ("http://127.0.0.1:4000/callback", "http://127.0.0.1:65535/callback", true),
    ("http://127.0.0.1:4000/callback", "http://127.0.0.1/callback", true),
    ("http://[::1]/callback", "http://[::1]:49152/callback", true),
    ("http://localhost/callback", "http://localhost:49152/callback", true),
    ("http://127.0.0.1/callback", "http://127.0.0.1:65536/callback", false),
    ("http://127.0.0.1/callback", "http://127.0.0.1:49152/other", false),
    ("http://127.0.0.1/callback", "http://127.0.0.1:49152/callback?x=1", false),
    ("http://127.0.0.1/callback", "http://127.0.0.1:49152/callback#x", false),
    ("http://127.0.0.1/callback", "http://127.0.0.2:49152/callback", false),
    ("http://127.0.0.1/callback", "http://localhost:49152/callback", false),
    ("http://127.0.0.1/callback", "http://[::1]:49152/callback", false),
    ("http://127.0.0.1/callback", "https://127.0.0.1:49152/callback", false),
    ("http://127.0.0.1/callback", "http://127.0.0.1:49152@evil.example/callback", false),
    ("http://127.0.0.1/callback", "http://127.0.0.1.evil.example/callback", false),
    ("com.example.app:/callback", "com.example.app:/callback", true),
    ("com.example.app:/callback", "com.example.app:/other", false),
    ("com.example.app:/callback", "com.example.app://callback", false),
    ("com.example.app:/callback", "com.example.app.evil:/callback", false),
];

#[tokio::test(flavor = "multi_thread")]
async fn registration_accepts_exactly_the_allowed_uris() {
    let app = App::start().await;
    let clients = clients(&app);
    for uri in REGISTRABLE {
        let mut new = public();
        new.redirect_uris = vec![(*uri).to_owned()];
        clients.add(&operator(), new).await.unwrap_or_else(|error| panic!("{uri}: {error}"));
    }
    let long = format!("https://app.example/{}", "a".repeat(5000));
    for uri in REFUSED.iter().copied().chain([long.as_str()]) {
        let mut new = public();
        // A registration is rejected even if only one of several URIs is unusable.
        new.redirect_uris = vec!["https://app.example/callback".to_owned(), uri.to_owned()];
        let error = clients.add(&operator(), new).await.expect_err(uri);
        assert!(matches!(error, oauth::OAuthError::Field(_)), "{uri}: {error}");
    }
    let mut none = public();
    none.redirect_uris.clear();
    clients.add(&operator(), none).await.unwrap_err();
    assert_eq!(clients.list().await.unwrap().len(), REGISTRABLE.len());
    let added = app.db_rows("SELECT id FROM store.audit WHERE event = 'oauth.client.add'").await;
    assert_eq!(added.len(), REGISTRABLE.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_may_name_exactly_the_registered_uris() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    for (registered, requested, allowed) in REQUESTS {
        let mut new = public();
        new.redirect_uris = vec![(*registered).to_owned()];
        let client = register(&app, new).await;
        // The redirect is also refused if it would contain an error.
        for change in [json!({}), json!({ "approve": false }), json!({ "scope": "unknown" })] {
            let mut change = change;
            change["redirect_uri"] = json!(requested);
            let response = client.authorize(&ada, change.clone()).await;
            if *allowed {
                let redirect = response.expect(200)["redirect"].as_str().unwrap();
                assert!(redirect.starts_with(requested), "{registered} {requested}: {redirect}");
            } else {
                let body = response.expect_error(400, "bad_request");
                assert_eq!(body["details"]["fields"][0]["path"], "redirect_uri", "{registered} {requested}");
            }
        }
    }
    assert!(REGISTRABLE.len() + REFUSED.len() + REQUESTS.len() >= 60);
}

/// The exchange must contain the URI of the request, with its port.
#[tokio::test(flavor = "multi_thread")]
async fn exchange_names_the_port_of_the_request() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let mut new = public();
    new.redirect_uris = vec!["http://127.0.0.1/callback".to_owned()];
    let client = register(&app, new).await;
    let requested = "http://127.0.0.1:49152/callback";
    let body = client.authorize(&ada, json!({ "redirect_uri": requested })).await.expect(200).clone();
    let redirect = url::Url::parse(body["redirect"].as_str().unwrap()).unwrap();
    let code = redirect.query_pairs().find(|(name, _)| name == "code").unwrap().1.into_owned();
    for other in ["http://127.0.0.1/callback", "http://127.0.0.1:49153/callback"] {
        let response = client.exchange_with(&code, &[("redirect_uri", other)]).await;
        super::kit::expect_oauth_error(&response, 400, "invalid_grant");
    }
    super::kit::Tokens::of(&client.exchange_with(&code, &[("redirect_uri", requested)]).await);
}

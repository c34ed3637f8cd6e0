//! The identity providers of end users, called as a browser and as the platform of an app.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Response;
use ring::digest::{SHA256, digest};
use ring::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::{Value, json};
use url::Url;
use url::form_urlencoded::{Serializer, parse};

use super::{TestSandbox, header};

const BACK: &str = "http://127.0.0.1:9/__svc/auth/callback/x?a=b";
const VERIFIER: &str = "a-verifier-of-at-least-43-characters-as-in-rfc-7636";
const PROVIDERS: [&str; 3] = ["codehost", "webaccount", "messenger"];

/// A client of an app at a provider.
struct Client {
    sandbox: TestSandbox,
    provider: &'static str,
    id: String,
    secret: String,
}

impl Client {
    async fn register(provider: &'static str) -> Self {
        let sandbox = TestSandbox::start().await;
        let registration = register(&sandbox, provider, json!([BACK])).await;
        assert_eq!(registration.status(), 201);
        let registration: Value = registration.json().await.unwrap();
        let text = |name: &str| registration[name].as_str().unwrap().to_owned();
        Self { sandbox, provider, id: text("client_id"), secret: text("client_secret") }
    }

    /// Returns an authorization request with these parameters instead of the valid ones.
    fn authorize(&self, changes: &[(&str, &str)]) -> String {
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, VERIFIER.as_bytes()));
        let mut parameters = vec![
            ("client_id", self.id.as_str()),
            ("redirect_uri", BACK),
            ("response_type", "code"),
            ("scope", "openid email profile"),
            ("state", "a&b"),
            ("nonce", "a nonce"),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        parameters.retain(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
        let query = Serializer::new(String::new()).extend_pairs(&parameters).extend_pairs(changes).finish();
        format!("/identity/{}/authorize?{query}", self.provider)
    }

    /// Submits the sign-in page. Returns the parameters of the redirect.
    async fn choose(&self, fields: &[(&str, &str)]) -> HashMap<String, String> {
        parameters(&self.sandbox.submit(&self.authorize(&[]), fields).await)
    }

    async fn code(&self, person: &str) -> String {
        self.choose(&[("person", person)]).await["code"].clone()
    }

    /// Exchanges a code, with these parameters instead of the valid ones.
    async fn exchange(&self, code: &str, accept: &str, changes: &[(&str, &str)]) -> Response {
        let mut parameters = vec![
            ("grant_type", "authorization_code"),
            ("client_id", &self.id),
            ("client_secret", &self.secret),
            ("code", code),
            ("redirect_uri", BACK),
            ("code_verifier", VERIFIER),
        ];
        parameters.retain(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
        let body = Serializer::new(String::new()).extend_pairs(&parameters).extend_pairs(changes).finish();
        let url = format!("{}/identity/{}/token", self.sandbox.base, self.provider);
        self.sandbox.browser.post(url).header("accept", accept).body(body).send().await.unwrap()
    }

    async fn tokens(&self, code: &str) -> Value {
        self.exchange(code, "application/json", &[]).await.json().await.unwrap()
    }

    async fn user(&self, tokens: &Value) -> Response {
        let url = format!("{}/identity/{}/user", self.sandbox.base, self.provider);
        let request = self.sandbox.browser.get(url).header("user-agent", "a node");
        request.bearer_auth(tokens["access_token"].as_str().unwrap()).send().await.unwrap()
    }

    /// Signs in a person, and returns the response of the user endpoint.
    async fn identify(&self, person: &str) -> Value {
        let code = self.code(person).await;
        self.user(&self.tokens(&code).await).await.json().await.unwrap()
    }

    /// Returns the header and the claims of an ID token, and whether its signature is valid.
    async fn read(&self, id_token: &str) -> (Value, Value, bool) {
        let parts: Vec<&str> = id_token.split('.').collect();
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        let json = |part: &str| serde_json::from_slice::<Value>(&decode(part)).unwrap();
        let (header, claims, signature) = (json(parts[0]), json(parts[1]), decode(parts[2]));
        let keys: Value =
            serde_json::from_str(&self.sandbox.text(&format!("/identity/{}/jwks", self.provider)).await).unwrap();
        let key = &keys["keys"][0];
        let member = |name: &str| decode(key[name].as_str().unwrap());
        let signed = format!("{}.{}", parts[0], parts[1]);
        let is_valid = key["kid"] == header["kid"]
            && match key["kty"].as_str().unwrap() {
                "RSA" => RsaPublicKeyComponents { n: member("n"), e: member("e") }
                    .verify(&RSA_PKCS1_2048_8192_SHA256, signed.as_bytes(), &signature)
                    .is_ok(),
                _ => {
                    let point = [vec![4], member("x"), member("y")].concat();
                    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
                        .verify(signed.as_bytes(), &signature)
                        .is_ok()
                }
            };
        (header, claims, is_valid)
    }
}

async fn register(sandbox: &TestSandbox, provider: &str, redirect_uris: Value) -> Response {
    let url = format!("{}/identity/{provider}/register", sandbox.base);
    let body = json!({ "redirect_uris": redirect_uris }).to_string();
    sandbox.browser.post(url).body(body).send().await.unwrap()
}

/// Returns the parameters with which a browser is sent back to the app.
fn parameters(response: &Response) -> HashMap<String, String> {
    assert_eq!(response.status(), 302);
    let back = Url::parse(&header(response, "location")).unwrap();
    assert!(back.as_str().starts_with(&format!("{BACK}&")), "{back}");
    let parameters: HashMap<_, _> = back.query_pairs().into_owned().collect();
    assert_eq!(parameters["state"], "a&b");
    parameters
}

#[tokio::test]
async fn code_host_uses_the_formats_of_github() {
    let client = Client::register("codehost").await;
    let page = client.sandbox.text(&client.authorize(&[])).await;
    assert!(page.contains("Sign in as grace-renamed") && page.contains("Deny access"), "{page}");

    let code = client.code("ada").await;
    let response = client.exchange(&code, "*/*", &[]).await;
    assert!(header(&response, "content-type").starts_with("application/x-www-form-urlencoded"));
    let form: HashMap<_, _> = parse(&response.bytes().await.unwrap()).into_owned().collect();
    assert_eq!(form["token_type"], "bearer");
    let ada: Value = client.user(&json!(form)).await.json().await.unwrap();
    let expected = json!({
        "id": 1815, "login": "ada", "name": "Ada Lovelace", "email": "ada@mail.example",
        "avatar_url": "https://avatars.code.example/u/1815?v=4", "type": "User", "site_admin": false,
    });
    assert_eq!(ada, expected);

    // An error has status 200, in both formats. A code is valid once.
    let response = client.exchange(&code, "application/json", &[]).await;
    let (status, error) = (response.status().as_u16(), response.json::<Value>().await.unwrap());
    assert_eq!((status, &error["error"]), (200, &json!("bad_verification_code")));
    let response = client.exchange(&code, "text/html", &[("client_secret", "x")]).await;
    assert!(response.text().await.unwrap().starts_with("error=incorrect_client_credentials&"));
    let url = format!("{}/identity/codehost/user", client.sandbox.base);
    assert_eq!(client.sandbox.browser.get(url).bearer_auth("x").send().await.unwrap().status(), 401);

    // The id stays when the login changes. The next owner of the login has another id.
    let (grace, renamed, reused) =
        (client.identify("grace").await, client.identify("grace-renamed").await, client.identify("grace-reused").await);
    assert_eq!((&grace["id"], &renamed["login"]), (&renamed["id"], &json!("amazing-grace")));
    assert!(grace["login"] == reused["login"] && grace["id"] != reused["id"], "{reused}");
    let nameless = client.identify("nameless").await;
    assert_eq!((&nameless["name"], &nameless["email"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn openid_providers_sign_id_tokens_and_describe_themselves() {
    for (provider, algorithm) in [("webaccount", "RS256"), ("messenger", "ES256")] {
        let client = Client::register(provider).await;
        let base = format!("{}/identity/{provider}", client.sandbox.base);
        let metadata = client.sandbox.text(&format!("/identity/{provider}/.well-known/openid-configuration")).await;
        let metadata: Value = serde_json::from_str(&metadata).unwrap();
        assert_eq!((&metadata["issuer"], &metadata["jwks_uri"]), (&json!(base), &json!(format!("{base}/jwks"))));
        assert_eq!(metadata["id_token_signing_alg_values_supported"], json!([algorithm]));

        let tokens = client.tokens(&client.code("ada").await).await;
        let (header, claims, is_valid) = client.read(tokens["id_token"].as_str().unwrap()).await;
        assert_eq!((&header["alg"], is_valid), (&json!(algorithm), true));
        assert_eq!((&claims["iss"], &claims["aud"]), (&json!(base), &json!(client.id)));
        assert_eq!(claims["nonce"], "a nonce");
        let ada: Value = client.user(&tokens).await.json().await.unwrap();
        assert_eq!((&ada["sub"], &ada["email_verified"]), (&claims["sub"], &json!(true)));
        assert_eq!(ada["email"], "ada@mail.example");
        let mallory = client.identify("mallory").await;
        assert_eq!((&mallory["email"], &mallory["email_verified"]), (&ada["email"], &json!(false)));
        assert_eq!(client.identify("nameless").await.as_object().unwrap().len(), 1);

        // The old key no longer verifies new ID tokens.
        let renewed = client.sandbox.submit(&format!("/identity/{provider}"), &[("keys", "renew")]).await;
        assert_eq!(renewed.status(), 302);
        let (old, _, is_valid) = client.read(tokens["id_token"].as_str().unwrap()).await;
        let tokens = client.tokens(&client.code("ada").await).await;
        let (new, ..) = client.read(tokens["id_token"].as_str().unwrap()).await;
        assert!(!is_valid && old["kid"] != new["kid"], "{old} {new}");
    }
}

#[tokio::test]
async fn redirect_uris_are_registered_and_match_exactly() {
    let sandbox = TestSandbox::start().await;
    for provider in PROVIDERS {
        for uris in [json!([]), json!("http://a.example"), json!(["a.example"]), json!(["javascript:1"]), json!([7])] {
            let response = register(&sandbox, provider, uris.clone()).await;
            let (status, body) = (response.status().as_u16(), response.json::<Value>().await.unwrap());
            assert_eq!((status, &body["error"]), (400, &json!("invalid_redirect_uri")), "{uris}");
        }
        let client = Client::register(provider).await;
        for uri in ["", "http://127.0.0.1:9/__svc/auth/callback/x", &format!("{BACK}&c=d"), &BACK.replace("127", "128")]
        {
            let response = client.sandbox.get(&client.authorize(&[("redirect_uri", uri)])).await;
            assert_eq!(response.status(), 400, "{uri}");
            assert!(response.text().await.unwrap().contains("not registered"), "{uri}");
        }
        assert_eq!(client.sandbox.get(&client.authorize(&[("client_id", "other")])).await.status(), 400);
    }
    // The page shows the credentials of a client that a person registers there.
    let page = "/identity/webaccount";
    let uris = "https://a.example/callback\r\nhttps://b.example/callback";
    assert_eq!(sandbox.submit(page, &[("redirect_uris", uris)]).await.status(), 302);
    let shown = sandbox.text(page).await;
    assert!(shown.contains("https://a.example/callback https://b.example/callback"), "{shown}");
    let refused = sandbox.submit(page, &[("redirect_uris", "x")]).await.text().await.unwrap();
    assert!(refused.contains("is not an http or https URL"), "{refused}");
    assert!(sandbox.text("/identity").await.contains("1 clients"));
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    for provider in PROVIDERS {
        let client = Client::register(provider).await;
        for (name, value, error) in [
            ("code_challenge_method", "plain", "invalid_request"),
            ("code_challenge", "", "invalid_request"),
            ("response_type", "token", "unsupported_response_type"),
        ] {
            let response = client.sandbox.get(&client.authorize(&[(name, value)])).await;
            assert_eq!(parameters(&response)["error"], error, "{name}");
        }
        if provider != "codehost" {
            let response = client.sandbox.get(&client.authorize(&[("scope", "email")])).await;
            assert_eq!(parameters(&response)["error"], "invalid_scope");
        }
        assert_eq!(client.choose(&[]).await["error"], "access_denied");
        for (name, value) in [
            ("code_verifier", "another-verifier-of-at-least-43-characters-xx"),
            ("redirect_uri", "http://127.0.0.1:9/"),
            ("client_secret", ""),
            ("grant_type", "password"),
        ] {
            let code = client.code("ada").await;
            let response = client.exchange(&code, "application/json", &[(name, value)]).await;
            let (is_ok, body) = (response.status() == 200, response.json::<Value>().await.unwrap());
            assert!(body["error"].is_string() && body["access_token"].is_null(), "{name} {body}");
            assert_eq!(is_ok, provider == "codehost", "{name}");
        }
        // A code of another client.
        let other: Value = register(&client.sandbox, provider, json!([BACK])).await.json().await.unwrap();
        let text = |name: &str| other[name].as_str().unwrap();
        let code = client.code("ada").await;
        let changes = [("client_id", text("client_id")), ("client_secret", text("client_secret"))];
        let body: Value = client.exchange(&code, "application/json", &changes).await.json().await.unwrap();
        assert!(body["access_token"].is_null(), "{body}");
    }
}

#[tokio::test]
async fn another_person_can_sign_in() {
    let client = Client::register("webaccount").await;
    let page = client.sandbox.text(&client.authorize(&[])).await;
    let (_, other) = page.split_once("Another user").unwrap();
    assert!(other.contains("<select name=fault>"), "{page}");
    let form = [("login", "linus"), ("name", "Linus"), ("email", "l@mail.example"), ("verified", "on")];
    let code = client.choose(&form).await["code"].clone();
    let linus: Value = client.user(&client.tokens(&code).await).await.json().await.unwrap();
    assert_eq!((&linus["email"], &linus["email_verified"]), (&json!("l@mail.example"), &json!(true)));
    assert_eq!(client.identify("linus").await["sub"], linus["sub"]);
    let refused = client.sandbox.submit(&client.authorize(&[]), &[("person", "nobody")]).await;
    assert!(refused.text().await.unwrap().contains("There is no such person."));
}

#[tokio::test]
async fn fault_applies_to_one_sign_in_or_to_a_provider() {
    let client = Client::register("webaccount").await;
    let sign_in = async |fault: &str| client.choose(&[("person", "ada"), ("fault", fault)]).await;
    assert_eq!(sign_in("error: server_error").await["error"], "server_error");
    let failed = client.exchange(&sign_in("token: 500").await["code"], "application/json", &[]).await;
    assert_eq!(failed.status(), 500);
    let expired = client.exchange(&sign_in("code: expired").await["code"], "application/json", &[]).await;
    assert_eq!(expired.json::<Value>().await.unwrap()["error"], "invalid_grant");
    let tokens = client.tokens(&sign_in("user: 500").await["code"]).await;
    assert_eq!(client.user(&tokens).await.status(), 500);
    let (valid_tokens, user) = (client.tokens(&client.code("ada").await).await, client.identify("ada").await);
    let (_, valid, _) = client.read(valid_tokens["id_token"].as_str().unwrap()).await;
    for (fault, claim) in [
        ("ID token: other issuer", "iss"),
        ("ID token: other audience", "aud"),
        ("ID token: other nonce", "nonce"),
        ("ID token: no nonce", "nonce"),
        ("ID token: other subject", "sub"),
    ] {
        let tokens = client.tokens(&sign_in(fault).await["code"]).await;
        let (_, claims, is_valid) = client.read(tokens["id_token"].as_str().unwrap()).await;
        assert!(is_valid && claims[claim] != valid[claim], "{fault}: {claims}");
        let subject = &client.user(&tokens).await.json::<Value>().await.unwrap()["sub"];
        assert_eq!(subject, &user["sub"], "{fault}");
    }
    let tokens = client.tokens(&sign_in("ID token: expired").await["code"]).await;
    let (_, claims, _) = client.read(tokens["id_token"].as_str().unwrap()).await;
    assert!(claims["exp"].as_i64() < claims["iat"].as_i64(), "{claims}");
    for fault in ["ID token: invalid signature", "ID token: unknown key", "ID token: not signed"] {
        let tokens = client.tokens(&sign_in(fault).await["code"]).await;
        assert!(!client.read(tokens["id_token"].as_str().unwrap()).await.2, "{fault}");
    }
    assert_eq!(client.tokens(&sign_in("ID token: missing").await["code"]).await["id_token"], Value::Null);

    // The fault of the provider applies to sign-ins without their own fault.
    let select = async |fault: &str| client.sandbox.submit("/identity/webaccount", &[("fault", fault)]).await.status();
    assert_eq!(select("unknown").await, 400);
    assert_eq!(select("keys: 500").await, 302);
    assert_eq!(client.sandbox.get("/identity/webaccount/jwks").await.status(), 500);
    assert_eq!(select("ID token: other audience").await, 302);
    let tokens = client.tokens(&client.code("ada").await).await;
    assert_ne!(client.read(tokens["id_token"].as_str().unwrap()).await.1["aud"], valid["aud"]);
    assert_eq!(select("none").await, 302);
    let tokens = client.tokens(&client.code("ada").await).await;
    assert_eq!(client.read(tokens["id_token"].as_str().unwrap()).await.1["aud"], valid["aud"]);
}

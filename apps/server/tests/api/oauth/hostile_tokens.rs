//! Access tokens that must be rejected (RFC 8725, RFC 9068 section 4). Most are signed with the server's own key.

use base64::Engine as _;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use ring::hmac;
use serde_json::{Value, json};

use super::forger::Forger;
use super::kit::{part, public, register};
use crate::support::App;

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns a change of an object. Null removes the member.
fn with(object: &Value, change: Value) -> Value {
    let mut object = object.clone();
    for (name, value) in change.as_object().unwrap() {
        object[name] = value.clone();
    }
    object.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    object
}

/// Tokens whose header is hostile.
fn hostile_headers(server: &Forger, stranger: &Forger, claims: &Value) -> Vec<(String, String)> {
    let header = server.header();
    let signed = |change: Value| (change.to_string(), server.sign(&with(&header, change), claims));
    let jwk = json!({ "kty": "EC", "crv": "P-256", "x": encode(&stranger.public_key), "y": "AA" });
    let mut tokens: Vec<_> = [
        json!({ "alg": "none" }),
        json!({ "alg": "None" }),
        json!({ "alg": "" }),
        json!({ "alg": null }),
        json!({ "alg": "HS256" }),
        json!({ "alg": "RS256" }),
        json!({ "alg": "PS256" }),
        json!({ "alg": "ES384" }),
        json!({ "alg": "ES512" }),
        json!({ "alg": "ES256K" }),
        json!({ "alg": "EdDSA" }),
        json!({ "alg": "es256" }),
        json!({ "alg": ["ES256"] }),
        json!({ "alg": 256 }),
        json!({ "typ": null }),
        json!({ "typ": "JWT" }),
        json!({ "typ": "jwt" }),
        json!({ "typ": "at+jwt2" }),
        json!({ "typ": "application/jwt" }),
        json!({ "typ": "id_token+jwt" }),
        json!({ "typ": "" }),
        json!({ "typ": ["at+jwt"] }),
        json!({ "kid": null }),
        json!({ "kid": "" }),
        json!({ "kid": "jwk_01h455vb4pex5vsknk084sn02q" }),
        json!({ "kid": server.kid.to_uppercase() }),
        json!({ "kid": format!("{} ", server.kid) }),
        json!({ "kid": "../../dev/null" }),
        json!({ "kid": "' OR 1=1 --" }),
        json!({ "kid": "https://evil.example/key" }),
        json!({ "kid": [server.kid] }),
        json!({ "kid": 1 }),
        json!({ "crit": ["exp"] }),
        json!({ "crit": [] }),
        json!({ "crit": ["b64"], "b64": false }),
    ]
    .into_iter()
    .map(signed)
    .collect();
    let null = header.to_string().replacen('{', "{\"crit\":null,", 1);
    tokens.push(("crit null".to_owned(), server.sign_text(&null, &claims.to_string())));
    let array = json!(["ES256", "at+jwt", server.kid, null]).to_string();
    tokens.push(("header as an array".to_owned(), server.sign_text(&array, &claims.to_string())));
    // The server never uses a key in the header, or a key that the header refers to.
    for change in [
        json!({ "jwk": jwk }),
        json!({ "jku": "https://evil.example/jwks.json" }),
        json!({ "x5u": "https://evil.example/cert.pem" }),
        json!({ "x5c": [URL_SAFE.encode(&stranger.public_key)] }),
        json!({ "jwk": jwk, "kid": null }),
    ] {
        tokens.push((format!("stranger {change}"), stranger.sign(&with(&header, change), claims)));
    }
    let repeated = |text: &str| header.to_string().replacen('{', text, 1);
    for text in ["{\"alg\":\"none\",", "{\"kid\":\"x\",", "{\"typ\":\"JWT\",", "{\"x\":1,\"x\":1,"] {
        tokens.push((format!("repeated {text}"), server.sign_text(&repeated(text), &claims.to_string())));
    }
    for text in ["", "null", "[]", "\"ES256\"", "{", "{}", "\u{feff}{}"] {
        tokens.push((format!("header {text:?}"), server.sign_text(text, &claims.to_string())));
    }
    let trailing = format!("{header}x");
    tokens.push(("trailing bytes".to_owned(), server.sign_text(&trailing, &claims.to_string())));
    tokens
}

/// Tokens whose claims are hostile.
fn hostile_claims(server: &Forger, claims: &Value) -> Vec<(String, String)> {
    let header = server.header();
    let now = claims["iat"].as_i64().unwrap();
    let mut tokens: Vec<_> = [
        json!({ "iss": null }),
        json!({ "iss": "http://127.0.0.1/" }),
        json!({ "iss": "https://127.0.0.1" }),
        json!({ "iss": "http://evil.example" }),
        json!({ "iss": ["http://127.0.0.1"] }),
        json!({ "aud": null }),
        json!({ "aud": "http://127.0.0.1/" }),
        json!({ "aud": "https://other.example" }),
        json!({ "aud": [] }),
        json!({ "aud": ["https://other.example"] }),
        json!({ "aud": "" }),
        json!({ "exp": null }),
        json!({ "exp": now - 1 }),
        json!({ "exp": 0 }),
        json!({ "exp": -1 }),
        json!({ "exp": (now + 900).to_string() }),
        json!({ "exp": true }),
        json!({ "exp": 1e300 }),
        json!({ "nbf": now + 3600 }),
        json!({ "nbf": "0" }),
        json!({ "iat": now + 3600 }),
        json!({ "iat": null }),
        json!({ "iat": "now" }),
        json!({ "sub": null }),
        json!({ "sub": "ada" }),
        json!({ "sub": claims["client_id"] }),
        json!({ "sub": "usr_01h455vb4pex5vsknk084sn02q" }),
        json!({ "sub": [claims["sub"]] }),
        json!({ "client_id": null }),
        json!({ "client_id": "app_01h455vb4pex5vsknk084sn02q" }),
        json!({ "client_id": claims["sub"] }),
        json!({ "sid": null }),
        json!({ "sid": "" }),
        json!({ "sid": "gnt_01h455vb4pex5vsknk084sn02q" }),
        json!({ "sid": "' OR 1=1 --" }),
        json!({ "sid": "gnt_\u{0}" }),
        json!({ "scope": null }),
        json!({ "scope": ["account:read"] }),
        json!({ "scope": "account:read unknown" }),
        json!({ "scope": 1 }),
    ]
    .into_iter()
    .map(|change| (change.to_string(), server.sign(&header, &with(claims, change))))
    .collect();
    for text in ["", "null", "[]", "{", "{}", "1"] {
        tokens.push((format!("claims {text:?}"), server.sign_text(&header.to_string(), text)));
    }
    let repeated = claims.to_string().replacen('{', "{\"sid\":\"gnt_01h455vb4pex5vsknk084sn02q\",", 1);
    tokens.push(("repeated claim".to_owned(), server.sign_text(&header.to_string(), &repeated)));
    let order = ["iss", "sub", "aud", "exp", "iat", "nbf", "client_id", "scope", "sid"];
    let array = Value::from_iter(order.map(|name| claims[name].clone())).to_string();
    for (name, text) in [
        ("claims as an array", array),
        ("nbf null", claims.to_string().replacen('{', "{\"nbf\":null,", 1)),
        ("repeated unknown claim", claims.to_string().replacen('{', "{\"x\":1,\"x\":1,", 1)),
    ] {
        tokens.push((name.to_owned(), server.sign_text(&header.to_string(), &text)));
    }
    let large = with(claims, json!({ "padding": "a".repeat(5000) }));
    tokens.push(("oversized".to_owned(), server.sign(&header, &large)));
    tokens
}

/// Tokens whose form or signature is hostile.
fn hostile_forms(server: &Forger, stranger: &Forger, claims: &Value, valid: &str) -> Vec<(String, String)> {
    let header = server.header();
    let (signed, signature) = valid.rsplit_once('.').unwrap();
    let (first, payload) = signed.split_once('.').unwrap();
    let raw = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let none = format!("{}.{payload}.", encode(with(&header, json!({ "alg": "none" })).to_string()));
    // The public key is used as an HMAC key.
    let confused = format!("{}.{payload}", encode(with(&header, json!({ "alg": "HS256" })).to_string()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, &server.public_key);
    let confused = format!("{confused}.{}", encode(hmac::sign(&key, confused.as_bytes())));
    let nested = with(&header, json!({ "cty": "JWT" }));
    let mut flipped = raw.clone();
    flipped[10] ^= 1;
    let mut der = vec![0x30, 68, 2, 32];
    der.extend(&raw[..32]);
    der.extend([2, 32]);
    der.extend(&raw[32..]);
    let widened = encode(with(claims, json!({ "scope": "account:read org:write" })).to_string());
    let padded = |text: &str| URL_SAFE.encode(URL_SAFE_NO_PAD.decode(text).unwrap());
    [
        ("another key", stranger.sign(&header, claims)),
        ("no signature", format!("{signed}.")),
        ("two parts", signed.to_owned()),
        ("four parts", format!("{valid}.")),
        ("five parts", format!("{valid}.AA.AA")),
        ("no parts", "..".to_owned()),
        ("alg none", none),
        ("HMAC with the public key", confused),
        ("nested", server.sign_text(&nested.to_string(), valid)),
        ("flipped bit", format!("{signed}.{}", encode(&flipped))),
        ("zero signature", format!("{signed}.{}", encode([0; 64]))),
        ("DER signature", format!("{signed}.{}", encode(&der))),
        ("truncated signature", format!("{signed}.{}", encode(&raw[..63]))),
        ("longer signature", format!("{signed}.{}", encode([&raw[..], &[0]].concat()))),
        ("other payload", format!("{first}.{widened}.{signature}")),
        ("swapped parts", format!("{payload}.{first}.{signature}")),
        ("padded signature", format!("{signed}.{}", padded(signature))),
        ("standard alphabet", format!("{signed}.{}+/", &signature[..84])),
        ("quoted", format!("\"{valid}\"")),
        ("percent encoding", valid.replace('.', "%2E")),
        ("upper case", valid.to_uppercase()),
    ]
    .map(|(name, token)| (name.to_owned(), token))
    .to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_tokens_are_rejected_with_the_challenge() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let tokens = client.sign_in_with(&ada, json!({ "scope": "account:read" })).await;
    let claims = part(&tokens.access, 1);
    let server = Forger::of(&app).await;
    let stranger = Forger::stranger(server.kid.clone());

    // Without hostile parts, the forger's tokens are valid. This includes other forms that a header may have.
    for change in
        [json!({}), json!({ "typ": "application/AT+JWT" }), json!({ "jku": "https://evil.example/jwks.json" })]
    {
        let valid = server.sign(&with(&server.header(), change.clone()), &claims);
        app.with_token(&valid).get("/v1/me").await.expect(200);
    }
    let early = with(&claims, json!({ "nbf": claims["iat"], "unknown": { "a": [1] } }));
    app.with_token(&server.sign(&server.header(), &early)).get("/v1/me").await.expect(200);

    let hostile = [
        hostile_headers(&server, &stranger, &claims),
        hostile_claims(&server, &claims),
        hostile_forms(&server, &stranger, &claims, &tokens.access),
    ]
    .concat();
    assert!(hostile.len() >= 40, "{}", hostile.len());
    for (name, token) in hostile {
        let response = app.with_token(&token).get("/v1/me").await;
        assert_eq!(
            (response.status, response.body["code"].as_str()),
            (401, Some("unauthenticated")),
            "{name}: {response:?}"
        );
        assert_eq!(response.header("www-authenticate"), "Bearer error=\"invalid_token\"", "{name}");
        assert_eq!(response.body["details"], Value::Null, "{name}: the reason is not shown");
    }
    app.with_token(&tokens.access).get("/v1/me").await.expect(200);
}

/// A token of another installation with the same issuer is rejected, because its key is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn token_of_another_installation_is_rejected() {
    let (app, other) = (App::start().await, App::start().await);
    let ada = other.sign_in("ada").await;
    let tokens = register(&other, public()).await.sign_in(&ada).await;
    other.with_token(&tokens.access).get("/v1/me").await.expect(200);
    super::kit::expect_rejected(&app, &tokens.access).await;
}

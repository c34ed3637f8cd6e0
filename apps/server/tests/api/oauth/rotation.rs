//! Rotation of the signing keys while clients use tokens. A resource server that caches the key set for a minute
//! accepts every valid token at any time.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::Value;

use super::kit::{Client, Tokens, expect_rejected, operator, part, public, register, signing_keys};
use crate::support::{App, eventually};

const KEYS: &str = "/.well-known/jwks.json";
/// The step of the clock, and the duration of the test. The duration covers two rotations and the lifetime of the last
/// tokens.
const STEP: i64 = 10;
const DURATION: i64 = 2 * 1300;

/// A resource server, or a proxy in front of the key set. It fetches the key set again when its copy is 60 seconds old.
struct Cache {
    next: i64,
    keys: Value,
}

impl Cache {
    async fn keys(&mut self, app: &App, now: i64) -> &Value {
        if now >= self.next {
            self.keys = app.anonymous().get(KEYS).await.expect(200)["keys"].clone();
            self.next = now + 60;
        }
        &self.keys
    }
}

/// Verifies a token with the keys of a cache, as a resource server does.
fn verify(keys: &Value, token: &str) -> Result<(), String> {
    let header = part(token, 0);
    let key = keys.as_array().unwrap().iter().find(|key| key["kid"] == header["kid"]);
    let key = key.ok_or_else(|| format!("the key {} is not in {keys}", header["kid"]))?;
    let coordinate = |name: &str| URL_SAFE_NO_PAD.decode(key[name].as_str().unwrap()).unwrap();
    let point = [vec![4], coordinate("x"), coordinate("y")].concat();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
        .verify(signed.as_bytes(), &signature)
        .map_err(|_| "the signature is invalid".to_owned())
}

/// Returns the key ids that a server publishes.
async fn published(app: &App) -> BTreeSet<String> {
    let keys = app.anonymous().get(KEYS).await.expect(200)["keys"].clone();
    keys.as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

/// Waits until each server has loaded the keys of the database, which takes at most ten seconds.
async fn wait_until_loaded(servers: &[&App], count: usize) {
    for server in servers {
        eventually("the server loads the keys", async || (published(server).await.len() == count).then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn valid_tokens_are_accepted_at_every_moment_of_a_rotation() {
    // This rate is high enough for the requests of the test, and divides evenly, so that the cost of a permit is not
    // rounded up.
    let rate = 600_000.try_into().unwrap();
    let app = App::with(|config| {
        let rates = &mut config.gateway.rate_limits;
        (rates.credential, rates.oauth_address, rates.oauth_client) = (rate, rate, rate);
    })
    .await;
    let other = app.another().await;
    let servers = [&app, &other];
    let ada = app.sign_in("ada").await;
    let client: Client = register(&app, public()).await;
    app.clock.stop();
    let mut last = client.sign_in(&ada).await;
    let keys = app.anonymous().get(KEYS).await.expect(200)["keys"].clone();
    // Each cache expires at another second of the minute.
    let mut caches: Vec<_> = (0..6).map(|n| Cache { next: n * STEP, keys: keys.clone() }).collect();
    let mut live: Vec<(i64, String)> = Vec::new();
    let mut signed_by = BTreeSet::new();
    for now in (0..DURATION).step_by(usize::try_from(STEP).unwrap()) {
        if now == 100 || now == 1400 {
            signing_keys(&app).rotate(&operator()).await.unwrap();
            wait_until_loaded(&servers, 2).await;
        }
        let server = servers[usize::from(now / STEP % 2 == 0)];
        last = Tokens::of(&client.at(server).refresh(&last.refresh).await);
        signed_by.insert(part(&last.access, 0)["kid"].as_str().unwrap().to_owned());
        live.push((now, last.access.clone()));
        live.retain(|(issued, _)| now - issued < 900);
        for (index, cache) in caches.iter_mut().enumerate() {
            let keys = cache.keys(servers[index % 2], now).await;
            // Check every tenth token, and the newest one.
            for (issued, token) in live.iter().step_by(10).chain(live.last()) {
                assert_eq!(verify(keys, token), Ok(()), "second {now}, cache {index}, issued at {issued}");
            }
        }
        // The API itself accepts the oldest and the newest token.
        for (_, token) in [live.first().unwrap(), live.last().unwrap()] {
            for server in servers {
                server.with_token(token).get("/v1/me").await.expect(200);
            }
        }
        app.clock.advance(STEP);
    }
    assert_eq!(signed_by.len(), 3, "both new keys have signed");
    // The first two keys are retired by this time.
    for server in servers {
        assert_eq!(published(server).await.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_is_refused_until_the_new_key_signs() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let first = client.sign_in(&ada).await;
    app.clock.stop();
    let keys = signing_keys(&app);
    keys.rotate(&operator()).await.unwrap();
    keys.rotate(&operator()).await.unwrap_err();
    app.clock.advance(60);
    keys.rotate(&operator()).await.unwrap_err();
    wait_until_loaded(&[&app], 2).await;
    let before = Tokens::of(&client.refresh(&first.refresh).await);
    assert_eq!(part(&before.access, 0), part(&first.access, 0), "caches may not have the new key yet");
    // The new key signs within 240 seconds after the command (contract section 3).
    app.clock.advance(180);
    let after = Tokens::of(&client.refresh(&before.refresh).await);
    assert_ne!(part(&after.access, 0), part(&first.access, 0));
    keys.rotate(&operator()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn retired_key_is_rejected_and_clients_can_refresh() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let client = register(&app, public()).await;
    let tokens = client.sign_in(&ada).await;
    let kid: String = part(&tokens.access, 0)["kid"].as_str().unwrap().to_owned();
    signing_keys(&app).retire(&operator(), kid.parse().unwrap()).await.unwrap();
    eventually("the server loads the keys", async || (!published(&app).await.contains(&kid)).then_some(())).await;
    expect_rejected(&app, &tokens.access).await;
    let next = Tokens::of(&client.refresh(&tokens.refresh).await);
    assert_eq!(next.sid(), tokens.sid());
    app.with_token(&next.access).get("/v1/me").await.expect(200);
}

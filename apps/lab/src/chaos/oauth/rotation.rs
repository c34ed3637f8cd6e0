//! Tests that a rotation of the signing key breaks neither apps nor resource servers with cached key sets.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::audit::Actor;
use oauth::SigningKeys;
use reqwest::Client;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::Value;
use tokio::time::sleep;

use super::Setup;
use crate::bench::server::{string_at, success_json};
use crate::chaos::Outcome;
use crate::chaos::report::Finding;
use crate::chaos::rig::Rig;
use crate::chaos::service::Service;
use crate::connected_app::{SharedKey, Tokens};

/// The maximum age of the key set in a cache.
const MAX_AGE: Duration = Duration::from_secs(60);
/// The number of resource servers. Their caches expire at different times.
const RESOURCE_SERVERS: u32 = 6;
/// The time from the rotation to the end. The new key signs after two minutes.
const DURATION: Duration = Duration::from_secs(200);
/// The time between two refreshes.
const INTERVAL: Duration = Duration::from_millis(100);
/// One in this number of tokens is kept, and verified again and again until the end.
const KEPT_EVERY: usize = 50;

/// A resource server with a cached key set.
struct ResourceServer {
    keys: BTreeMap<String, Vec<u8>>,
    expires_at: Instant,
}

/// The figures of the run.
#[derive(Default)]
struct Counts {
    tokens: usize,
    verified: usize,
    used: usize,
    rejected: Vec<String>,
    /// The keys that signed.
    keys: BTreeSet<String>,
    /// The time from the rotation to the first token of the last key.
    signs_after: Duration,
}

pub async fn run(setup: &Setup, rig: &Rig, key: &SharedKey, outcome: &mut Outcome) -> Result<()> {
    let folder = tempfile::tempdir()?;
    // Tokens of one server are also used at the other server, which learns the keys from the database.
    let other = Service::start(folder.path(), rig.database.clone(), &key.settings()).await?;
    let setup = setup.repeating();
    let measured = rotate(&setup, &other.base()).await;
    other.stop().await;
    let Counts { tokens, verified, used, rejected, keys, signs_after } = measured?;
    // The key is created shortly before the measured time begins, and a refresh takes some time.
    let is_on_time = (115.0..=130.0).contains(&signs_after.as_secs_f64());
    outcome.findings.push(Finding::new(
        "a rotation of the signing key under load, with two servers and key sets cached for one minute",
        "no valid token is rejected at any moment; the new key signs two minutes after it is published",
        rejected.is_empty() && keys.len() == 2 && is_on_time,
        format!(
            "{tokens} tokens of {} keys in {} s; {used} requests and {verified} verifications with cached key sets, {} \
             rejected; the last key signs after {:.1} s; {} requests repeated after a 503",
            keys.len(),
            DURATION.as_secs(),
            rejected.len(),
            signs_after.as_secs_f64(),
            setup.app.take_repetitions(),
        ),
    ));
    outcome.violations.extend(rejected);
    Ok(())
}

async fn rotate(setup: &Setup, other: &str) -> Result<Counts> {
    let mut tokens = setup.app.sign_in(&setup.session).await?;
    let mut servers = Vec::new();
    for number in 0..RESOURCE_SERVERS {
        let mut server = ResourceServer::fetch(&setup.client, &setup.base).await?;
        server.expires_at = Instant::now() + MAX_AGE * number / RESOURCE_SERVERS;
        servers.push(server);
    }
    SigningKeys::new(setup.store.clone()).rotate(&Actor::operator("lab")).await?;
    let (start, elsewhere) = (Instant::now(), setup.app.at(other));
    let (mut counts, mut kept) = (Counts::default(), Vec::new());
    while start.elapsed() < DURATION {
        // The two servers alternate in signing tokens.
        let signer = if counts.tokens % 2 == 0 { &setup.app } else { &elsewhere };
        tokens = signer.refresh(&tokens.refresh).await?.tokens()?;
        counts.tokens += 1;
        if counts.keys.insert(key_id(&tokens)?) {
            counts.signs_after = start.elapsed();
        }
        for (name, app) in [("the same server", &setup.app), ("the other server", &elsewhere)] {
            let status = app.use_token(&tokens.access).await?;
            counts.used += 1;
            if status != 200 {
                counts.rejected.push(format!("{name} returned {status} after {:.0?}", start.elapsed()));
            }
        }
        if counts.tokens % KEPT_EVERY == 0 {
            kept.push(tokens.clone());
        }
        for server in &mut servers {
            if server.expires_at <= Instant::now() {
                *server = ResourceServer::fetch(&setup.client, &setup.base).await?;
            }
            let again = kept.get(counts.tokens % kept.len().max(1)).into_iter();
            for token in again.chain([&tokens]) {
                counts.verified += 1;
                if let Err(error) = server.verify(&token.access) {
                    counts.rejected.push(format!("a resource server: {error:#}, after {:.0?}", start.elapsed()));
                }
            }
        }
        sleep(INTERVAL).await;
    }
    Ok(counts)
}

impl ResourceServer {
    /// Loads the key set into the cache.
    async fn fetch(client: &Client, base: &str) -> Result<Self> {
        let response = client.get(format!("{base}/.well-known/jwks.json")).send().await?;
        let caching = response.headers().get("cache-control").and_then(|value| value.to_str().ok()).unwrap_or_default();
        ensure!(caching == format!("public, max-age={}", MAX_AGE.as_secs()), "unexpected Cache-Control: {caching}");
        let set = success_json(response).await?;
        let mut keys = BTreeMap::new();
        for key in set.get("keys").and_then(Value::as_array).context("no keys")? {
            let coordinate = |name| anyhow::Ok(URL_SAFE_NO_PAD.decode(string_at(key, name)?)?);
            let point = [vec![4], coordinate("/x")?, coordinate("/y")?].concat();
            keys.insert(string_at(key, "/kid")?, point);
        }
        Ok(Self { keys, expires_at: Instant::now() + MAX_AGE })
    }

    /// Verifies the signature with the cached keys.
    fn verify(&self, token: &str) -> Result<()> {
        let (signed, signature) = token.rsplit_once('.').context("no JWT")?;
        let id = header_key_id(token)?;
        let key = self.keys.get(&id).with_context(|| format!("the cached key set has no key {id}"))?;
        let signature = URL_SAFE_NO_PAD.decode(signature)?;
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key);
        key.verify(signed.as_bytes(), &signature).ok().context("the signature is invalid")
    }
}

fn key_id(tokens: &Tokens) -> Result<String> {
    header_key_id(&tokens.access)
}

fn header_key_id(token: &str) -> Result<String> {
    let header = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap_or_default())?;
    string_at(&serde_json::from_slice(&header)?, "/kid")
}

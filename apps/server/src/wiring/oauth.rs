//! Construction of the authorization server, and delivery of ended grants to the model-lending service.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use kernel::audit::Actor;
use kernel::{ClockRng, Time};
use oauth::{OAuth, OAuthError, REVOCATION_TOPIC};
use opentelemetry::metrics::Gauge;
use providers::Lending;
use serde::Deserialize;
use store::Store;
use store::outbox::{DeliveryError, Message, OutboxHandler};

use crate::config::{Config, LENDING_URL, LendingConfig};
use crate::jobs::{Background, HOUR, Job, MINUTE};

/// The interval at which a process reloads the signing keys. It must be shorter than the two minutes between the
/// publication of a key and its first signature.
const RELOAD_PERIOD: Duration = Duration::from_secs(10);

pub(super) fn wire(config: &Config, store: &Store, background: &mut Background) -> anyhow::Result<OAuth> {
    let oauth = OAuth::new(store.clone(), config.oauth.clone());
    if let Some(LendingConfig { url, key }) = &config.lending {
        let lending = Lending::new(url, key.clone()).map_err(|error| LENDING_URL.malformed(error))?;
        let clock_rng = store.clock_rng().clone();
        background.outbox(store.spawn_outbox_worker(Arc::new(Revocations { lending, clock_rng })));
    } else {
        let purge_revocations = Job::every(HOUR, "oauth.purge_revocations");
        background.job(purge_revocations, store.clone(), async |store| {
            store.outbox_purge_unattempted(REVOCATION_TOPIC).await
        });
    }
    background.job(Job::every(MINUTE, "oauth.purge"), oauth.clone(), async |oauth| oauth.purge().await);
    if config.oauth.is_some() {
        let context = (oauth.clone(), store.clock_rng().clone());
        let load_keys = Job::every(RELOAD_PERIOD, "oauth.load_keys").without_clock();
        background.job(load_keys, context, async |(oauth, clock_rng)| {
            oauth.keys().load().await?;
            oauth.keys().ensure(&Actor::service("oauth.load_keys")).await?;
            record_key_age(&oauth, clock_rng.now()).await
        });
        background.job(Job::every(MINUTE, "oauth.purge_keys"), oauth.clone(), async |oauth| {
            oauth.keys().purge(&Actor::service("oauth.purge_keys")).await
        });
    }
    Ok(oauth)
}

/// Records how long the current key has been signing. A gauge keeps its last value, so the job records it repeatedly.
async fn record_key_age(oauth: &OAuth, now: Time) -> Result<(), OAuthError> {
    static AGE: LazyLock<Gauge<i64>> = LazyLock::new(|| {
        opentelemetry::global::meter("svc")
            .i64_gauge("svc.oauth.signing_key.age")
            .with_unit("s")
            .with_description("Time since the key that signs access tokens started to sign")
            .build()
    });
    if let Some(key) = oauth.keys().get().await?.current(now) {
        AGE.record(now.unix_seconds() - key.signs_from.unix_seconds(), &[]);
    }
    Ok(())
}

/// Reports ended grants.
struct Revocations {
    lending: Lending,
    clock_rng: ClockRng,
}

#[derive(Deserialize)]
struct Revocation {
    sid: String,
}

#[async_trait]
impl OutboxHandler for Revocations {
    fn topic(&self) -> &'static str {
        REVOCATION_TOPIC
    }

    async fn deliver(&self, message: &Message) -> Result<(), DeliveryError> {
        let Revocation { sid } = message.parse()?;
        // The id is the same for every message about a grant, even if an operator sends the message again.
        let sent = self.lending.revoke(&format!("msg_{sid}"), &sid, self.clock_rng.now()).await;
        // Every response except 2xx is retried (contract section 3).
        sent.map_err(|error| DeliveryError::transient(&error))
    }
}

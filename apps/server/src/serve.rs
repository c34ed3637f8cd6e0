//! The listeners and the passes beside them.

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use actix_web::HttpServer;
use actix_web::dev::Server as Listener;
use anyhow::{Context as _, anyhow};
use gateway::{internal_app, public_app};
use identity::IdentityError;
use kernel::World;
use prometheus::Registry;
use store::outbox::Pass;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::config::Config;
use crate::wiring::{Parts, parts};

/// How long requests may take to finish once the process is told to stop.
const FINISH: u64 = 25;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// How old a temporary object is when nobody writes it any more: an upload takes ten minutes at most.
const ABANDONED: i64 = 60 * 60;

/// A control plane that listens.
pub struct Server {
    /// Where the public listener is.
    pub public: SocketAddr,
    /// Where the internal listener is.
    pub internal: SocketAddr,
    /// Where zones are transferred from.
    pub primary: Option<SocketAddr>,
    listeners: (Listener, Listener),
    clocked: Vec<JoinHandle<()>>,
    passes: Vec<Pass>,
}

impl Server {
    /// Binds both listeners. Postgres need not be there yet: until it is, `/readyz` says so.
    ///
    /// # Errors
    /// An address in use, a bundle store that cannot be made, a database address that is none.
    pub fn bind(config: &Config, world: World, registry: Registry) -> anyhow::Result<Self> {
        let Parts { services, projects, bundles, passes, nameservers } = parts(config, world, registry)?;
        let past = (services.limiters(), services.store(), services.identity());
        let primary = nameservers.listen();
        let mut clocked = vec![
            every(MINUTE, "forgetting what is past", past, async |(limiters, store, identity)| {
                let (rates, keys, logins) =
                    tokio::join!(limiters.forget_idle(&store), store.once_forget(), identity.logins_forget());
                rates.and(keys).map_err(IdentityError::from).and(logins)
            }),
            every(MINUTE, "looking for proofs of hostnames", projects.clone(), async |projects| {
                projects.hostnames_check().await.map(drop)
            }),
            every(HOUR, "removing deleted projects", projects, async |projects| projects.purge().await.map(drop)),
            every(HOUR, "sweeping what is left of uploads", (bundles, services.store()), async |(bundles, store)| {
                bundles.sweep(store.world().now().plus_seconds(-ABANDONED)).await.map(drop)
            }),
        ];
        clocked.extend(nameservers.run());
        let served = services.clone();
        let store = services.store();
        // In each of its threads.
        let app = move || {
            store.settle();
            public_app(&served)
        };
        let public = HttpServer::new(app)
            .workers(config.database.threads.max(1))
            .client_request_timeout(Duration::from_secs(5))
            .client_disconnect_timeout(Duration::from_secs(1))
            .keep_alive(Duration::from_secs(75))
            .shutdown_timeout(FINISH)
            .disable_signals()
            .bind(config.listen)
            .with_context(|| format!("SVC_LISTEN {}", config.listen))?;
        let internal = HttpServer::new(move || internal_app(&services))
            .workers(1)
            .disable_signals()
            .bind(config.internal_listen)
            .with_context(|| format!("SVC_INTERNAL_LISTEN {}", config.internal_listen))?;
        let first = |addresses: Vec<SocketAddr>| addresses.first().copied().context("no address was bound");
        let (public_at, internal_at) = (first(public.addrs())?, first(internal.addrs())?);
        let listeners = (public.run(), internal.run());
        Ok(Self { public: public_at, internal: internal_at, primary, listeners, clocked, passes })
    }

    /// Serves until `stop` ends; what was accepted by then is answered.
    ///
    /// # Errors
    /// When a listener fails.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let (public, internal) = self.listeners;
        let handles = (public.handle(), internal.handle());
        let (mut public, mut internal) = (tokio::spawn(public), tokio::spawn(internal));
        tokio::select! {
            () = stop => {}
            ended = &mut public => return ended?.map_err(|error| error.into()).and(Err(anyhow!("the public listener ended"))),
            ended = &mut internal => return ended?.map_err(|error| error.into()).and(Err(anyhow!("the internal listener ended"))),
        }
        // Mails that are on their way arrive while the last requests are answered.
        let mut passes = self.passes.into_iter().map(Pass::stop).collect::<JoinSet<()>>();
        handles.0.stop(true).await;
        // Nodes that wait for a change come again, to whoever listens then.
        handles.1.stop(false).await;
        self.clocked.iter().for_each(JoinHandle::abort);
        while passes.join_next().await.is_some() {}
        public.await??;
        internal.await??;
        Ok(())
    }
}

/// Does the work on `part` now and then once in each period, in a task of its own. What fails is done again the next time.
pub(crate) fn every<P: Clone + Send + 'static, E: Display + Send, W: Future<Output = Result<(), E>> + Send>(
    period: Duration,
    what: &'static str,
    part: P,
    work: impl Fn(P) -> W + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = work(part.clone()).await {
                tracing::warn!(%error, "{what} did not succeed");
            }
        }
    })
}

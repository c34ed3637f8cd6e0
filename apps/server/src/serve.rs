//! The listeners and the passes beside them.

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
use tokio::task::JoinSet;

use crate::config::Config;
use crate::wiring::{Parts, parts};

/// How long requests may take to finish once the process is told to stop.
const FINISH: u64 = 25;

/// A control plane that listens.
pub struct Server {
    /// Where the public listener is.
    pub public: SocketAddr,
    /// Where the internal listener is.
    pub internal: SocketAddr,
    listeners: (Listener, Listener),
    minutely: tokio::task::JoinHandle<()>,
    passes: Vec<Pass>,
}

impl Server {
    /// Binds both listeners. Postgres need not be there yet: until it is, `/readyz` says so.
    ///
    /// # Errors
    /// An address in use, a bundle store that cannot be made, a database address that is none.
    pub fn bind(config: &Config, world: World, registry: Registry) -> anyhow::Result<Self> {
        let Parts { services, passes } = parts(config, world, registry)?;
        let (limiters, store, identity) = (services.limiters(), services.store(), services.identity());
        let minutely = tokio::spawn(async move {
            let mut minutes = tokio::time::interval(Duration::from_secs(60));
            loop {
                minutes.tick().await;
                let (rates, keys, logins) =
                    tokio::join!(limiters.forget_idle(&store), store.once_forget(), identity.logins_forget());
                if let Err(error) = rates.and(keys).map_err(IdentityError::from).and(logins) {
                    tracing::warn!(%error, "what is past was not forgotten");
                }
            }
        });
        let served = services.clone();
        let public = HttpServer::new(move || public_app(&served))
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
        Ok(Self { public: public_at, internal: internal_at, listeners, minutely, passes })
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
        self.minutely.abort();
        while passes.join_next().await.is_some() {}
        public.await??;
        internal.await??;
        Ok(())
    }
}

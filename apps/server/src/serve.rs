//! The listeners, and the background work next to them.

use std::net::SocketAddr;
use std::time::Duration;

use actix_web::HttpServer;
use actix_web::dev::Server as Listener;
use anyhow::{Context as _, anyhow};
use gateway::{internal_app, public_app};
use kernel::World;
use prometheus::Registry;

use crate::config::Config;
use crate::jobs::Background;
use crate::wiring::{Parts, parts};

/// How long requests may take to finish once the process is told to stop.
const FINISH: u64 = 25;

/// A control plane that listens.
pub struct Server {
    /// Where the public listener is.
    pub public: SocketAddr,
    /// Where the internal listener is.
    pub internal: SocketAddr,
    /// Where zones are transferred from.
    pub primary: Option<SocketAddr>,
    listeners: (Listener, Listener),
    background: Background,
}

impl Server {
    /// Binds both listeners. Postgres need not be there yet: until it is, `/readyz` says so.
    ///
    /// # Errors
    /// An address in use, a bundle store that cannot be made, a database address that is none.
    pub fn bind(config: &Config, world: World, registry: Registry) -> anyhow::Result<Self> {
        let Parts { services, background, primary } = parts(config, world, registry)?;
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
        Ok(Self { public: public_at, internal: internal_at, primary, listeners, background })
    }

    /// Serves until `stop` ends; what was accepted by then is answered.
    ///
    /// # Errors
    /// When a listener fails.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let (public, internal) = self.listeners;
        let handles = (public.handle(), internal.handle());
        let (mut public, mut internal) = (tokio::spawn(public), tokio::spawn(internal));
        tokio::select! {
            () = stop => {}
            ended = &mut public => return ended?.map_err(|error| error.into()).and(Err(anyhow!("the public listener ended"))),
            ended = &mut internal => return ended?.map_err(|error| error.into()).and(Err(anyhow!("the internal listener ended"))),
        }
        // The outbox workers finish their deliveries while the last requests are answered.
        let mut workers = self.background.drain();
        handles.0.stop(true).await;
        // Nodes that wait for a change come again, to whoever listens then.
        handles.1.stop(false).await;
        drop(self.background);
        while workers.join_next().await.is_some() {}
        public.await??;
        internal.await??;
        Ok(())
    }
}

//! The listeners and the passes beside them.

use std::net::SocketAddr;
use std::time::Duration;

use actix_web::HttpServer;
use actix_web::dev::Server as Listener;
use anyhow::{Context as _, anyhow};
use gateway::{internal_app, public_app};
use kernel::World;
use prometheus::Registry;

use crate::config::Config;
use crate::wiring::services;

/// How long requests may take to finish once the process is told to stop.
const FINISH: u64 = 25;

/// A control plane that listens.
pub struct Server {
    /// Where the public listener is.
    pub public: SocketAddr,
    /// Where the internal listener is.
    pub internal: SocketAddr,
    listeners: (Listener, Listener),
    idle_callers: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Binds both listeners. Postgres need not be there yet: until it is, `/readyz` says so.
    ///
    /// # Errors
    /// An address in use, a bundle store that cannot be made, a database address that is none.
    pub fn bind(config: &Config, world: World, registry: Registry) -> anyhow::Result<Self> {
        let services = services(config, world, registry)?;
        let limiters = services.limiters();
        let idle_callers = tokio::spawn(async move {
            let mut minutes = tokio::time::interval(Duration::from_secs(60));
            loop {
                minutes.tick().await;
                limiters.forget_idle();
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
        Ok(Self { public: public_at, internal: internal_at, listeners, idle_callers })
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
        handles.0.stop(true).await;
        // Nodes that wait for a change come again, to whoever listens then.
        handles.1.stop(false).await;
        self.idle_callers.abort();
        public.await??;
        internal.await??;
        Ok(())
    }
}

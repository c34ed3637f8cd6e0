//! The listeners, background work and graceful shutdown.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_web::HttpServer;
use actix_web::dev::Server as Listener;
use anyhow::{Context as _, anyhow};
use gateway::http::Shutdown;
use gateway::{internal_app, public_service, rejections};
use kernel::ClockRng;
use prometheus::Registry;
use settings::rate_limit_key;
use tls::{HttpSettings, bind};
use tokio::time::sleep;

use crate::config::{Config, TlsConfig};
use crate::jobs::Background;
use crate::wiring::{Components, build};

/// During this time after the start of the shutdown, the listener still serves requests on idle connections. Otherwise,
/// a request that a client sent just before its idle connection was closed would be lost.
const LINGER: Duration = Duration::from_millis(500);

/// The time that requests in flight have to finish during a graceful shutdown.
const SHUTDOWN_TIMEOUT_SECONDS: u64 = 25;
/// Connections stay open longer than those of a proxy, such as 60 s for nginx: it must not use one that just closed.
const PUBLIC_HTTP: HttpSettings = HttpSettings {
    keep_alive: Duration::from_secs(75),
    write_timeout: Duration::from_secs(60),
    allows_half_closed: true,
    client_key: rate_limit_key,
};
/// Nodes keep their idle connections for 90 s, the default of their HTTP client. They must not use one that just closed.
const INTERNAL_KEEP_ALIVE: Duration = Duration::from_secs(120);

/// A control plane with bound listeners.
pub struct Server {
    /// The address of the public listener.
    pub public: SocketAddr,
    /// The address of the TLS listener.
    pub tls: Option<SocketAddr>,
    /// The address of the internal listener.
    pub internal: SocketAddr,
    /// The address for zone transfers.
    pub primary: Option<SocketAddr>,
    listeners: (Listener, Listener),
    shutdown: Shutdown,
    background: Background,
}

impl Server {
    /// Binds the listeners. It does not wait for Postgres: `/readyz` fails until Postgres is available.
    ///
    /// # Errors
    /// Returns an error if an address cannot be bound, the bundle store cannot be created, or the database URL is
    /// invalid.
    pub fn bind(config: &Config, clock_rng: ClockRng, registry: Registry) -> anyhow::Result<Self> {
        let Components { services, background, primary, handshaker } = build(config, clock_rng, registry)?;
        let shutdown = services.shutdown();
        let http = bind(config.listen).with_context(|| format!("SVC_LISTEN {}", config.listen))?;
        let listen = |tls: &TlsConfig| bind(tls.listen).with_context(|| format!("SVC_TLS_LISTEN {}", tls.listen));
        let https = config.tls.as_ref().map(listen).transpose()?;
        let public_address = http.local_addr()?;
        let tls_address = https.as_ref().map(TcpListener::local_addr).transpose()?;
        let builder =
            Listener::build().workers(config.database.threads.max(1)).shutdown_timeout(SHUTDOWN_TIMEOUT_SECONDS);
        let reject = rejections(&services);
        let app = {
            let services = services.clone();
            move || {
                services.store().bind_pool_to_thread();
                public_service(&services)
            }
        };
        let public = tls::serve(builder, (http, https.zip(handshaker)), PUBLIC_HTTP, app, reject)?;
        let internal = HttpServer::new(move || internal_app(&services))
            .tcp_nodelay(true)
            .workers(1)
            .keep_alive(INTERNAL_KEEP_ALIVE)
            // A long poll ends with its node. Otherwise it would claim mail for a node that stopped.
            .h1_allow_half_closed(false)
            .disable_signals()
            .bind(config.internal_listen)
            .with_context(|| format!("SVC_INTERNAL_LISTEN {}", config.internal_listen))?;
        let internal_address = internal.addrs().first().copied().context("no address was bound")?;
        let listeners = (public, internal.run());
        Ok(Self {
            public: public_address,
            tls: tls_address,
            internal: internal_address,
            primary,
            listeners,
            shutdown,
            background,
        })
    }

    /// Serves until `stop` completes, then shuts down gracefully.
    ///
    /// # Errors
    /// Returns an error if a listener fails.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let (public, internal) = self.listeners;
        let handles = (public.handle(), internal.handle());
        let (mut public, mut internal) = (tokio::spawn(public), tokio::spawn(internal));
        tokio::select! {
            () = stop => {}
            ended = &mut public => return ended?.map_err(|error| error.into()).and(Err(anyhow!("the public listener ended"))),
            ended = &mut internal => return ended?.map_err(|error| error.into()).and(Err(anyhow!("the internal listener ended"))),
        }
        // End the requests that wait for nodes before the listener stops waiting for them.
        self.shutdown.begin();
        // Outbox workers and requests in flight finish concurrently.
        let mut workers = self.background.drain();
        sleep(LINGER).await;
        handles.0.stop(true).await;
        // Close the connections of nodes immediately, because nodes retry.
        handles.1.stop(false).await;
        drop(self.background);
        while workers.join_next().await.is_some() {}
        public.await??;
        internal.await??;
        Ok(())
    }
}

//! The mail node: receives mail for the addresses of projects over SMTP and hands it over to the control plane.
//!
//! The control plane decides about each recipient, at RCPT and again before the node acknowledges the mail. An accepted
//! mail stays in a durable queue (see `queue`) until the control plane has received it. While the control plane is down,
//! the node refuses mail temporarily, so that senders try again.

mod address;
mod clock;
pub mod config;
mod core;
mod header;
mod host;
mod internal;
pub mod limits;
mod metrics;
mod queue;
mod recipients;
mod smtp;
mod spf;
mod tls;
mod trace;

use std::net::SocketAddr;
use std::sync::Arc;

use actix_web::dev::Server as HttpServer;
use anyhow::{Context as _, bail};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::config::Config;
use crate::core::Core;
use crate::limits::Clients;
use crate::metrics::Metrics;
use crate::queue::{Deliverer, Queue};
use crate::recipients::Recipients;
use crate::smtp::Server;
use crate::spf::Spf;
use crate::tls::Tls;

pub use host::HostName;
pub use queue::QueueLimits;

/// A mail node whose sockets are open. [`MailNode::run_until`] runs it.
pub struct MailNode {
    address: SocketAddr,
    internal_address: SocketAddr,
    internal: HttpServer,
    smtp: JoinHandle<()>,
    stopping: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl MailNode {
    /// Opens the queue, resumes the delivery of its mails, and opens the listeners.
    ///
    /// # Errors
    /// Returns an error if the queue, the certificate or an address cannot be used.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let (core, metrics) = (Core::new(&config)?, Metrics::new()?);
        let (queue, committed) = Queue::open(&config.dir, config.limits.queue).context("cannot use SVC_MX_DIR")?;
        let mut tasks = JoinSet::new();
        let (tls, reload) = config.tls.map(Tls::load).transpose().context("cannot use SVC_MX_TLS_CERT")?.unzip();
        if let Some(reload) = reload {
            tasks.spawn(reload.run());
        }
        let spf = Spf::new(config.resolver, config.hostname.clone(), config.limits.timeouts.spf)?;
        let listening = |address| move || format!("cannot listen on {address}");
        let listener = TcpListener::bind(config.listen).await.with_context(listening(config.listen))?;
        let address = listener.local_addr()?;
        let (internal_address, internal) = internal::listen(config.internal_listen, &metrics, queue.clone())
            .with_context(listening(config.internal_listen))?;
        tasks.spawn(Deliverer::new(queue.clone(), core.clone(), metrics.clone(), committed).run());
        let server = Server {
            host: config.hostname,
            clients: Clients::new(&config.limits),
            recipients: Recipients::new(core, metrics.clone(), config.limits.lookups_per_second),
            limits: config.limits,
            spf,
            queue,
            tls,
            metrics,
        };
        let (stopping, stopped) = watch::channel(false);
        let smtp = tokio::spawn(smtp::serve(listener, Arc::new(server), stopped));
        tracing::info!(%address, %internal_address, core = config.core_url, "listening");
        Ok(Self { address, internal_address, internal, smtp, stopping, tasks })
    }

    /// Returns the address on which the node accepts SMTP.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of the internal listener.
    #[must_use]
    pub const fn internal_address(&self) -> SocketAddr {
        self.internal_address
    }

    /// Serves until `stop` completes, then waits for the mails that clients are transmitting. Queued mail stays on disk
    /// for the next start.
    ///
    /// # Errors
    /// Returns an error if a listener or a background task ends before `stop` completes.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let handle = self.internal.handle();
        let mut internal = tokio::spawn(self.internal);
        tokio::select! {
            () = stop => {}
            ended = self.tasks.join_next() => bail!("a background task ended unexpectedly: {ended:?}"),
            ended = &mut self.smtp => bail!("the SMTP server ended unexpectedly: {ended:?}"),
            ended = &mut internal => bail!("the internal listener ended unexpectedly: {ended:?}"),
        }
        self.stopping.send_replace(true);
        self.smtp.await?;
        self.tasks.shutdown().await;
        handle.stop(false).await;
        Ok(internal.await??)
    }
}

//! The metrics of the mail node.

use prometheus::{Gauge, Histogram, HistogramOpts, IntCounterVec, IntGauge, Opts, Registry};

/// The metrics. Clones share their values.
#[derive(Clone)]
pub struct Metrics {
    connections: IntCounterVec,
    open: IntGauge,
    replies: IntCounterVec,
    mails: IntCounterVec,
    sizes: Histogram,
    lookups: IntCounterVec,
    spf: IntCounterVec,
    handovers: IntCounterVec,
    queue: IntGauge,
    queue_age: Gauge,
    registry: Registry,
}

impl Metrics {
    /// Creates the metrics. Fails only if two metrics have the same name.
    pub fn new() -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str, label| IntCounterVec::new(Opts::new(name, help), &[label]);
        let sizes = prometheus::exponential_buckets(1024.0, 4.0, 9)?;
        let sizes = HistogramOpts::new("svc_mx_mail_bytes", "Sizes of the accepted mails").buckets(sizes);
        let metrics = Self {
            connections: counter("svc_mx_connections_total", "Connections of clients, by outcome", "outcome")?,
            open: IntGauge::new("svc_mx_open_connections", "Open connections of clients")?,
            replies: counter("svc_mx_replies_total", "Replies to clients, by code", "code")?,
            mails: counter("svc_mx_mails_total", "Mails after DATA, by outcome", "outcome")?,
            sizes: Histogram::with_opts(sizes)?,
            lookups: counter("svc_mx_lookups_total", "Look-ups of recipients, by outcome", "outcome")?,
            spf: counter("svc_mx_spf_total", "SPF checks, by result", "result")?,
            handovers: counter("svc_mx_handovers_total", "Copies for the control plane, by outcome", "outcome")?,
            queue: IntGauge::new("svc_mx_queue_mails", "Mails in the queue")?,
            queue_age: Gauge::new("svc_mx_queue_age_seconds", "The age of the oldest mail in the queue")?,
            registry: Registry::new(),
        };
        for counters in
            [&metrics.connections, &metrics.replies, &metrics.mails, &metrics.lookups, &metrics.spf, &metrics.handovers]
        {
            metrics.registry.register(Box::new(counters.clone()))?;
        }
        // Alerts use these counters, so they exist before their first event.
        for outcome in ["refused", "damaged"] {
            metrics.handovers.with_label_values(&[outcome]);
        }
        metrics.registry.register(Box::new(metrics.open.clone()))?;
        metrics.registry.register(Box::new(metrics.sizes.clone()))?;
        metrics.registry.register(Box::new(metrics.queue.clone()))?;
        metrics.registry.register(Box::new(metrics.queue_age.clone()))?;
        Ok(metrics)
    }

    /// Counts a new connection. The outcome is `accepted`, `tls`, or the limit that refused the connection.
    pub fn connection(&self, outcome: &str) {
        self.connections.with_label_values(&[outcome]).inc();
    }

    /// Counts a connection as open until the returned value is dropped.
    pub fn open_connection(&self) -> OpenConnection {
        self.open.inc();
        OpenConnection(self.open.clone())
    }

    /// Counts a reply.
    pub fn reply(&self, code: u16) {
        self.replies.with_label_values(&[code.to_string()]).inc();
    }

    /// Counts an accepted mail, and records its size.
    pub fn accepted(&self, bytes: u64) {
        self.mails.with_label_values(&["accepted"]).inc();
        #[expect(clippy::cast_precision_loss, reason = "at most 26 MiB")]
        self.sizes.observe(bytes as f64);
    }

    /// Counts a refused mail.
    pub fn refused(&self, outcome: &str) {
        self.mails.with_label_values(&[outcome]).inc();
    }

    /// Counts a lookup of a recipient.
    pub fn lookup(&self, outcome: &str) {
        self.lookups.with_label_values(&[outcome]).inc();
    }

    /// Counts an SPF check.
    pub fn spf(&self, result: &str) {
        self.spf.with_label_values(&[result]).inc();
    }

    /// Counts an attempt to hand over a mail to one project. A refusal counts when no further attempt follows.
    pub fn handover(&self, outcome: &str) {
        self.handovers.with_label_values(&[outcome]).inc();
    }

    /// Sets the number of mails in the queue, and the age of the oldest one in seconds.
    pub fn queue(&self, mails: usize, age: f64) {
        self.queue.set(i64::try_from(mails).unwrap_or(i64::MAX));
        self.queue_age.set(age);
    }

    /// Returns the registry of the metrics.
    pub fn registry(&self) -> Registry {
        self.registry.clone()
    }
}

/// Counts as an open connection until it is dropped.
pub struct OpenConnection(IntGauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

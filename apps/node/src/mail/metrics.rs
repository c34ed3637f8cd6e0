//! The metrics of mail.

use prometheus::{IntCounterVec, Opts, Registry};
use protocol::DeliveryResult;

/// The metrics. Clones share their values.
#[derive(Clone)]
pub struct MailMetrics {
    /// By outcome: `ok` or the code of the error.
    sends: IntCounterVec,
    /// By result.
    deliveries: IntCounterVec,
}

impl MailMetrics {
    /// Creates and registers the metrics. Fails only if two have one name.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let sends = Opts::new("svc_node_mail_sends_total", "Calls of env.email.send, by outcome");
        let deliveries =
            Opts::new("svc_node_mail_deliveries_total", "Attempts to deliver a mail to a worker, by result");
        let metrics = Self {
            sends: IntCounterVec::new(sends, &["outcome"])?,
            deliveries: IntCounterVec::new(deliveries, &["result"])?,
        };
        registry.register(Box::new(metrics.sends.clone()))?;
        registry.register(Box::new(metrics.deliveries.clone()))?;
        Ok(metrics)
    }

    pub fn count_send(&self, outcome: &str) {
        self.sends.with_label_values(&[outcome]).inc();
    }

    pub fn count_delivery(&self, result: &DeliveryResult) {
        let result = match result {
            DeliveryResult::Handled => "handled",
            DeliveryResult::Rejected(_) => "rejected",
            DeliveryResult::NoHandler => "no_handler",
            DeliveryResult::Failed(_) => "failed",
        };
        self.deliveries.with_label_values(&[result]).inc();
    }
}

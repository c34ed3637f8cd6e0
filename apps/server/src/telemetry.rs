//! Metrics for Prometheus, and traces over OTLP if a collector is configured.

use kernel::error_chain;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use prometheus::Registry;

/// The telemetry pipelines of this process.
pub struct Telemetry {
    registry: Registry,
    traces: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Installs the global meter provider and trace propagator.
    ///
    /// # Errors
    /// Returns an error if the URL of the collector is unusable.
    pub fn start(otlp_url: Option<&str>) -> anyhow::Result<Self> {
        // The exporter's HTTP client needs a crypto provider even for plain http. Installing a second provider fails,
        // which does not matter.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let registry = Registry::new();
        let exporter = opentelemetry_prometheus::exporter().with_registry(registry.clone()).build()?;
        let service = Resource::builder().with_service_name("svc-server").build();
        let meters = SdkMeterProvider::builder().with_reader(exporter).with_resource(service.clone()).build();
        opentelemetry::global::set_meter_provider(meters);
        opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
        let traces = otlp_url.map(|url| {
            let exporter = opentelemetry_otlp::SpanExporter::builder()
                .with_http()
                .with_protocol(Protocol::HttpBinary)
                .with_endpoint(format!("{url}/v1/traces"))
                .build()?;
            let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(service).build();
            anyhow::Ok(provider)
        });
        Ok(Self { registry, traces: traces.transpose()? })
    }

    /// Returns the registry that `/metrics` renders.
    #[must_use]
    pub fn registry(&self) -> Registry {
        self.registry.clone()
    }

    /// Returns the tracer, if a collector is configured.
    pub(crate) fn tracer(&self) -> Option<SdkTracer> {
        self.traces.as_ref().map(|traces| traces.tracer("svc"))
    }

    /// Exports the remaining traces.
    pub async fn stop(self) {
        let Some(traces) = self.traces else { return };
        let stopped = tokio::task::spawn_blocking(move || traces.shutdown()).await;
        if let Ok(Err(error)) = stopped {
            tracing::warn!(error = %error_chain(&error), "failed to export the last traces");
        }
    }
}

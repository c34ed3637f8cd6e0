//! The control plane process: constructs the contexts and serves them on the public and the internal listener.

pub mod config;
mod jobs;
mod logging;
mod print;
mod serve;
mod telemetry;
mod wiring;

pub use config::Config;
pub use logging::start as start_logging;
pub use print::print;
pub use serve::Server;
pub use telemetry::Telemetry;

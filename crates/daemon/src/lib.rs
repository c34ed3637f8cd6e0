//! The common part of the programs next to the control plane, such as the node: arguments, log and signals, the
//! settings of the control plane's address and of the credential for it, backoff, rate limits, the texts of errors,
//! files that may be missing, free space, the metrics, ids of mails, and with the feature `resolver` the DNS client.

mod backoff;
mod control_plane;
mod error_chain;
mod files;
mod mail_id;
mod metrics;
mod program;
mod rate;
#[cfg(feature = "resolver")]
mod resolver;

pub use backoff::Backoff;
pub use control_plane::{base_address, bearer, client_builder};
pub use error_chain::error_chain;
pub use files::{free_bytes, if_exists};
pub use mail_id::new_mail_id;
pub use metrics::show_metrics;
pub use program::{Program, Stop, init_log, install_crypto_provider};
pub use rate::Rate;
#[cfg(feature = "resolver")]
pub use resolver::resolver;

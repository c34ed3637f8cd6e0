//! The timeout of the tests.

use std::time::Duration;

/// A timeout that a correct node never reaches, also on a busy machine. It only prevents that a test waits forever.
pub const TIMEOUT: Duration = Duration::from_secs(60);

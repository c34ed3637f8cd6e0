//! Fault injection for `cargo xtask chaos` and tests: a TCP proxy that injects network faults, writers that keep a
//! journal of acknowledged writes, and the invariants that must hold after every fault.

mod check;
mod invariants;
mod journal;
mod proxy;
mod write;
mod writers;

pub use invariants::{Invariant, invariants, rows, setup_sql, violations};
pub use journal::{WriteStats, Writer, client};
pub use proxy::{NetworkFault, Proxy, Upstream};
pub use write::LOAD_TEST_LIMITS;
pub use writers::{Writers, run_clients};

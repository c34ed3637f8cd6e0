//! Breaking the product on purpose, and looking at what is left of it: a proxy that fails in the ways networks do,
//! writers that keep a journal of what was acknowledged to them, and what must hold whatever happened. For
//! `cargo xtask chaos` and for tests.

mod check;
mod invariants;
mod journal;
mod proxy;
mod write;
mod writers;

pub use invariants::{Invariant, broken, invariants, preparation, rows};
pub use journal::{Tally, Writer, client};
pub use proxy::{Passage, Proxy, Upstream};
pub use write::LIMITS;
pub use writers::Writers;

//! The client behind `env.db`: a pool of connections to the project's database, and JSON results.
//!
//! Worker code receives most types as the text that Postgres prints, so this client requests all results as text.
//! `tokio-postgres` cannot do that (docs/decisions.md). Therefore, this client speaks the extended query protocol
//! itself, over the messages of the crate `postgres-protocol`:
//!
//! 1. Parse and Describe return the types of the parameters and columns. Parameters are written for these types.
//! 2. Bind and Execute return the rows. Each one is appended to the JSON of the result (`output`), which is sent to
//!    the worker while further rows arrive.
//! 3. Sync commits. A batch is a transaction, which is committed after the last result.
//!
//! The pool resets a connection before the next call, so that no state of a session is visible in another call.
//! Everything that a statement can return is bounded: its time, its result, and the memory for large rows, of each owner
//! and in total.

mod call;
mod cancel;
mod connection;
mod elements;
mod error;
mod limits;
mod metrics;
mod output;
mod parameter;
mod pool;
mod pools;
mod refusal;
mod socket;
mod startup;
mod statement;
mod types;
mod wire;

pub use self::call::{Call, Mode};
pub use self::error::{DatabaseError, Result};
pub use self::limits::Limits;
pub use self::metrics::CallMetrics;
pub use self::pool::Pool;
pub use self::pools::Pools;

use crate::memory::Memory;

/// Smaller arguments and rows are not counted: the number of calls in flight limits them.
const SMALL_BYTES: usize = 64 << 10;

/// Creates the limits on the memory of large arguments, or of large rows.
fn memory() -> Memory {
    Memory::new(512 << 20, 64 << 20)
}

//! The storage of this context, a trait for each topic.

mod deploy;
mod node;
mod ref_update;
mod repo;

pub use deploy::*;
pub use node::*;
pub use ref_update::*;
pub use repo::*;

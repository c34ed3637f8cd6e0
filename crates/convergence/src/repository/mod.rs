//! Repositories. Each file holds a trait on [`store::Connection`] and its SQL.

mod node;
mod part;
mod placement;

pub use node::*;
pub use part::*;
pub use placement::*;

//! The storage of this context, a trait for each topic.

mod charge;
mod domain;
mod history;

pub use charge::*;
pub use domain::*;
pub use history::*;

//! Repositories. Each file holds a trait on [`store::Connection`] and its SQL.

mod database;
mod export;
mod generation;
mod operation;
mod part;
mod project;
mod report;
mod token;
mod usage;

pub use database::*;
pub use export::*;
pub use generation::*;
pub use operation::*;
pub use part::*;
pub use project::*;
pub use report::*;
pub use token::*;
pub use usage::*;

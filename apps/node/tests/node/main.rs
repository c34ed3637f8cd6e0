//! A node against a control plane that this suite plays, asked by real visitors.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod caching;
mod control_plane;
mod converging;
mod process;
mod protected;
mod reporting;
mod representations;
mod running;
mod serving;
mod visitor;
mod workers;

//! A node against a control plane that this suite plays, asked by real visitors.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod control_plane;
mod converging;
mod process;
mod running;
mod serving;
mod visitor;

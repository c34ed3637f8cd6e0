//! Tests of a mail node with SMTP clients, against a simulated control plane and a real name server.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod clients;
mod control_plane;
mod durability;
mod fixture;
mod hostile;
mod limits;
mod receiving;
mod spf;

//! Certificates, issued by Pebble.

mod api;
mod faults;
mod issuance;
mod kill;
mod limits;
mod proxy;
mod recovery;
mod renewal;
mod rig;

use crate::support::eventually_with_retries as eventually;

//! Zones of the API on real nameservers: Knot, which signs, and its secondaries BIND and NSD.

pub mod daemon;
mod dnssec;
mod propagation;
mod query;
mod registered;
mod rig;

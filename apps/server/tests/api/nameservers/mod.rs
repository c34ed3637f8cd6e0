//! Zones of the API at real nameservers: Knot, which signs, and its secondaries BIND and NSD.

mod daemon;
mod dnssec;
mod propagation;
mod query;
mod rig;

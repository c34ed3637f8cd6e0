//! Zones of the API as real nameservers serve them: Knot, which signs, and BIND and NSD behind it.

mod ask;
mod chain;
mod daemon;
mod dnssec;
mod rig;

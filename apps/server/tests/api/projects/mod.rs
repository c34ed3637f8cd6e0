//! Projects, their deployments, hostnames and access policies.

mod access;
mod deployments;
mod hostname_takeovers;
mod hostnames;
mod hsts;
mod project;
mod uploads;

//! Projects, their deployments, hostnames and access policies.

mod access;
mod deployments;
mod hostnames;
mod project;

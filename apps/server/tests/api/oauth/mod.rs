//! Connected apps: the authorization server, and its access tokens at the API.

mod access;
mod authorize;
mod clients;
mod code;
mod device;
mod forger;
mod forms;
mod grants;
mod hostile_tokens;
pub mod kit;
mod lending;
mod libraries;
mod limits;
mod metadata;
mod off;
mod process;
mod races;
mod redirect_uris;
mod refresh;
mod revoke;
mod rotation;
mod sandbox_app;

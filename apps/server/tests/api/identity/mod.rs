//! Sign-in, accounts and credentials.

mod account;
mod codehost;
mod ssh_keys;
mod tokens;

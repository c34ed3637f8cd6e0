//! Sign-in, accounts, sessions and credentials.

mod account;
mod codehost;
mod ssh_keys;
mod tokens;

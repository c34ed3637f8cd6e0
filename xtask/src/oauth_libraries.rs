//! OAuth client libraries, which tests run unmodified: oauth4webapi and openid-client from npm, with jose for the
//! validation of access tokens, and Authlib from PyPI, with requests as its HTTP client.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::Value;
use xtask::{npm, obtain, pypi};

/// The npm packages with their digests.
const LOCK: &str = include_str!("oauth_libraries/package-lock.json");

/// The PyPI packages with their digests: wheels for Linux (x64, arm64) and macOS (arm64), and for Python 3.11 to 3.14.
const REQUIREMENTS: &str = include_str!("oauth_libraries/requirements.txt");

/// Returns the environment variables that pass the folders of the libraries to tests. Prints which tests are skipped if
/// a registry is unavailable.
pub fn find() -> Vec<(&'static str, PathBuf)> {
    let mut found = Vec::new();
    match from_npm() {
        Ok(folder) => found.push(("SVC_TEST_OAUTH_LIBRARIES", folder)),
        Err(error) => println!("  oauth4webapi and openid-client not available ({error:#}): their tests are skipped"),
    }
    match obtain::folder("authlib", REQUIREMENTS, |folder| pypi::unpack(folder, REQUIREMENTS)) {
        Ok(folder) => found.push(("SVC_TEST_AUTHLIB", folder)),
        Err(error) => println!("  Authlib   not available ({error:#}): its tests are skipped"),
    }
    found
}

fn from_npm() -> Result<PathBuf> {
    let lock: Value = serde_json::from_str(LOCK)?;
    let root = lock.pointer("/packages/").context("the lock file has no root package")?;
    let folder = obtain::folder("oauth-libraries", LOCK, |folder| npm::install(folder, root, Some(&lock)))?;
    Ok(folder.join("node_modules"))
}

//! Validators of the OpenAPI document: schemathesis and openapi-spec-validator from PyPI, and Spectral from npm.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde_json::json;
use xtask::{npm, obtain, pypi};

/// Pinned versions of all packages and dependencies, so that results do not change without a change here.
const REQUIREMENTS: &str = include_str!("openapi_validators/requirements.txt");

const SPECTRAL: [(&str, &str); 2] = [("@stoplight/spectral-cli", "6.16.3"), ("@stoplight/spectral-rulesets", "1.23.1")];

/// Returns the environment variables that pass the programs to tests. Prints which tests are skipped if a program is
/// unavailable.
pub fn find() -> Vec<(&'static str, PathBuf)> {
    let mut found = Vec::new();
    match pypi::programs("openapi-validators", REQUIREMENTS) {
        Ok(programs) => {
            found.push(("SVC_TEST_SCHEMATHESIS", programs.join("schemathesis")));
            found.push(("SVC_TEST_SPEC_VALIDATOR", programs.join("openapi-spec-validator")));
        }
        Err(error) => {
            println!("  schemathesis and openapi-spec-validator not available ({error:#}): their tests are skipped")
        }
    }
    match spectral() {
        Ok(program) => found.push(("SVC_TEST_SPECTRAL", program)),
        Err(error) => println!("  spectral  not available ({error:#}): its test is skipped"),
    }
    found
}

fn spectral() -> Result<PathBuf> {
    let package = json!({ "dependencies": SPECTRAL.into_iter().collect::<std::collections::BTreeMap<_, _>>() });
    let folder = obtain::folder("spectral", &package.to_string(), |folder| npm::install(folder, &package, None))?;
    let program = folder.join("node_modules/.bin/spectral");
    ensure!(program.is_file(), "the npm package contains no program");
    Ok(program)
}

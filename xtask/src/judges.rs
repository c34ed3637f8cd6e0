//! Judges of the OpenAPI document: schemathesis and openapi-spec-validator from PyPI, Spectral from npm. Obtained once,
//! below `.svc`.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde_json::json;
use xtask::{npm, obtain, pypi};

/// Each in one version, and what they are made of as well: a judge does not change its mind by itself.
const REQUIREMENTS: &str = include_str!("judges/requirements.txt");

const SPECTRAL: [(&str, &str); 2] = [("@stoplight/spectral-cli", "6.16.3"), ("@stoplight/spectral-rulesets", "1.23.1")];

/// The environment variables that name them to tests. Says of each what it means that it is not to be had.
pub fn find() -> Vec<(&'static str, PathBuf)> {
    let mut found = Vec::new();
    match pypi::programs("judges", REQUIREMENTS) {
        Ok(programs) => {
            found.push(("SVC_TEST_SCHEMATHESIS", programs.join("schemathesis")));
            found.push(("SVC_TEST_SPEC_VALIDATOR", programs.join("openapi-spec-validator")));
        }
        Err(error) => println!("  judges    not to be had ({error:#}): their tests are skipped"),
    }
    match spectral() {
        Ok(program) => found.push(("SVC_TEST_SPECTRAL", program)),
        Err(error) => println!("  spectral  not to be had ({error:#}): its test is skipped"),
    }
    found
}

fn spectral() -> Result<PathBuf> {
    let wanted = json!({ "dependencies": SPECTRAL.into_iter().collect::<std::collections::BTreeMap<_, _>>() });
    let folder = obtain::folder("spectral", &wanted.to_string(), |folder| npm::install(folder, &wanted, None))?;
    let program = folder.join("node_modules/.bin/spectral");
    ensure!(program.is_file(), "npm's package holds no program");
    Ok(program)
}

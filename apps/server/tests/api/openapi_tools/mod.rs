//! External tools that check the OpenAPI document, and the server against the document. `cargo xtask test` installs
//! them.

mod fixture;

use std::collections::HashMap;

use serde_json::Value;
use tokio::process::Command;

use crate::support::{Folder, external_program};
use fixture::{CONFIG, Fixture};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api/openapi_tools/spectral.yaml");

/// The number of generated requests per operation, and the seed of the generator. `SVC_TEST_SCHEMATHESIS_EXAMPLES` and
/// `SVC_TEST_SCHEMATHESIS_SEED` override them.
const EXAMPLES: &str = "12";
const SEED: &str = "1";

/// Runs a tool and panics with its output if it fails.
async fn run_tool(command: &mut Command) {
    let output = command.kill_on_drop(true).output().await.unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    println!("{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn openapi_document_is_valid() {
    let Some(validator) = external_program("SVC_TEST_SPEC_VALIDATOR") else { return };
    run_tool(Command::new(validator).arg(DOCUMENT)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn openapi_document_passes_the_linter() {
    let Some(spectral) = external_program("SVC_TEST_SPECTRAL") else { return };
    run_tool(Command::new(spectral).args(["lint", "--fail-severity", "hint", "--ruleset", RULES, DOCUMENT])).await;
}

/// A rule for an unknown operation or path parameter would have no effect.
#[test]
fn schemathesis_rules_name_existing_operations_and_path_parameters() {
    let document: Value = serde_json::from_str(&std::fs::read_to_string(DOCUMENT).unwrap()).unwrap();
    let methods = document["paths"].as_object().unwrap().iter().flat_map(|(path, methods)| {
        let operations = methods.as_object().unwrap().values();
        operations.filter_map(|operation| Some((operation["operationId"].as_str()?.to_owned(), path.as_str())))
    });
    let paths: HashMap<String, &str> = methods.collect();
    let config: toml::Table = CONFIG.parse().unwrap();
    let assert_used = |rule: &toml::Value, paths: &[&str]| {
        let Some(parameters) = rule.get("parameters") else { return };
        for name in parameters.as_table().unwrap().keys().filter_map(|key| key.strip_prefix("path.")) {
            let is_used = paths.iter().any(|path| path.contains(&format!("{{{name}}}")));
            assert!(is_used, "no operation has path.{name}: {rule:?}");
        }
    };
    assert_used(&toml::Value::Table(config.clone()), &paths.values().copied().collect::<Vec<_>>());
    for rule in config["operations"].as_array().unwrap() {
        let ids = rule["include-operation-id"].as_array().unwrap().iter();
        let of_rule: Vec<&str> = ids.map(|id| paths[id.as_str().unwrap()]).collect();
        assert_used(rule, &of_rule);
    }
}

/// Runs all checks of schemathesis in these phases, as this caller.
async fn run_schemathesis(caller: &str, phases: &str) {
    let Some(schemathesis) = external_program("SVC_TEST_SCHEMATHESIS") else { return };
    let setting = |name: &str, default: &str| std::env::var_os(name).unwrap_or_else(|| default.into());
    let (examples, seed) =
        (setting("SVC_TEST_SCHEMATHESIS_EXAMPLES", EXAMPLES), setting("SVC_TEST_SCHEMATHESIS_SEED", SEED));
    let fixture = Fixture::new(Folder::new("openapi-tools")).await;
    let mut run = Command::new(&schemathesis);
    run.current_dir(&fixture.folder.path).arg("--config-file").arg(&fixture.config).arg("run").arg(&fixture.document);
    run.args(["--no-color", "--generation-database", "none"]);
    run.arg("--seed").arg(&seed).arg("--max-examples").arg(&examples);
    run_tool(run.args(["--auth-wfc-user", caller, "--phases", phases]).env("NO_PROXY", "*")).await;
    let log = fixture.server.log();
    assert!(!log.contains("panicked"), "{log}");
}

/// Runs the deterministic phases with a session.
#[tokio::test(flavor = "multi_thread")]
async fn server_conforms_to_the_openapi_document() {
    run_schemathesis("ada", "examples,coverage").await;
}

/// Runs the deterministic phases with a token.
#[tokio::test(flavor = "multi_thread")]
async fn server_conforms_to_the_openapi_document_for_a_token() {
    run_schemathesis("token", "examples,coverage").await;
}

/// Runs random requests with a session.
#[tokio::test(flavor = "multi_thread")]
async fn server_conforms_to_the_openapi_document_for_random_requests() {
    run_schemathesis("ada", "fuzzing").await;
}

/// Runs random sequences of requests with a session.
#[tokio::test(flavor = "multi_thread")]
async fn server_conforms_to_the_openapi_document_for_random_sequences() {
    run_schemathesis("ada", "stateful").await;
}

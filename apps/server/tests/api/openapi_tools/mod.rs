//! External tools that check the OpenAPI document, and the server against the document. `cargo xtask test` installs
//! them.

mod fixture;

use tokio::process::Command;

use crate::support::{Folder, external_program};
use fixture::Fixture;

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

/// Runs all checks and phases of schemathesis with a session, and the deterministic phases with a token.
#[tokio::test(flavor = "multi_thread")]
async fn server_conforms_to_the_openapi_document() {
    let Some(schemathesis) = external_program("SVC_TEST_SCHEMATHESIS") else { return };
    let setting = |name: &str, default: &str| std::env::var_os(name).unwrap_or_else(|| default.into());
    let (examples, seed) =
        (setting("SVC_TEST_SCHEMATHESIS_EXAMPLES", EXAMPLES), setting("SVC_TEST_SCHEMATHESIS_SEED", SEED));
    let fixture = Fixture::new(Folder::new("openapi-tools")).await;
    for (caller, phases) in [("ada", "examples,coverage,fuzzing,stateful"), ("token", "examples,coverage")] {
        let mut run = Command::new(&schemathesis);
        run.current_dir(&fixture.folder.path)
            .arg("--config-file")
            .arg(&fixture.config)
            .arg("run")
            .arg(&fixture.document);
        run.args(["--no-color", "--generation-database", "none"]);
        run.arg("--seed").arg(&seed).arg("--max-examples").arg(&examples);
        run_tool(run.args(["--auth-wfc-user", caller, "--phases", phases]).env("NO_PROXY", "*")).await;
    }
    let log = fixture.server.log();
    assert!(!log.contains("panicked"), "{log}");
}

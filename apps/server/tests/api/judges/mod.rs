//! Judges from outside: programs of others that read the OpenAPI document, and one that holds the server against it.
//! `cargo xtask test` obtains them.

mod world;

use tokio::process::Command;

use crate::kit::{Folder, outside};
use world::World;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api/judges/spectral.yaml");

/// The requests that are made up for each operation, and what they are made up from. More of them and others are asked
/// for with `SVC_TEST_JUDGE_EXAMPLES` and `SVC_TEST_JUDGE_SEED`.
const EXAMPLES: &str = "12";
const SEED: &str = "1";

/// Fails the test with the words of the judge, unless it is content.
async fn judge(command: &mut Command) {
    let output = command.kill_on_drop(true).output().await.unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}");
    println!("{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_is_valid() {
    let Some(validator) = outside("SVC_TEST_SPEC_VALIDATOR") else { return };
    judge(Command::new(validator).arg(DOCUMENT)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_reads_well() {
    let Some(spectral) = outside("SVC_TEST_SPECTRAL") else { return };
    judge(Command::new(spectral).args(["lint", "--fail-severity", "hint", "--ruleset", RULES, DOCUMENT])).await;
}

/// Every check and every phase of schemathesis, with a session; and with a token what needs no making up.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_does_what_the_document_says() {
    let Some(schemathesis) = outside("SVC_TEST_SCHEMATHESIS") else { return };
    let setting = |name: &str, usual: &str| std::env::var_os(name).unwrap_or_else(|| usual.into());
    let (examples, seed) = (setting("SVC_TEST_JUDGE_EXAMPLES", EXAMPLES), setting("SVC_TEST_JUDGE_SEED", SEED));
    let world = World::new(Folder::new("judges")).await;
    for (caller, phases) in [("ada", "examples,coverage,fuzzing,stateful"), ("token", "examples,coverage")] {
        let mut run = Command::new(&schemathesis);
        run.current_dir(&world.folder.path).arg("--config-file").arg(&world.config).arg("run").arg(&world.document);
        run.args(["--no-color", "--generation-database", "none"]);
        run.arg("--seed").arg(&seed).arg("--max-examples").arg(&examples);
        judge(run.args(["--auth-wfc-user", caller, "--phases", phases]).env("NO_PROXY", "*")).await;
    }
    let log = world.server.log();
    assert!(!log.contains("panicked"), "{log}");
}

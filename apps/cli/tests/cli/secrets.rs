//! `svc secrets`.

use std::process::Command;

use serde_json::json;

use crate::support::{Machine, Platform, program};

/// The maximum size of a value in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// Returns the names and versions of the project's secrets.
fn versions(machine: &Machine) -> Vec<(String, i64)> {
    let list = machine.json(&["secrets", "list"]);
    let items = list["items"].as_array().unwrap().iter();
    items.map(|it| (it["name"].as_str().unwrap().to_owned(), it["version"].as_i64().unwrap())).collect()
}

fn owned<const N: usize>(versions: [(&str, i64); N]) -> Vec<(String, i64)> {
    versions.map(|(name, version)| (name.to_owned(), version)).to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn sets_lists_and_deletes_secrets_without_printing_values() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    assert_eq!(ada.svc(&["secrets", "list"]).succeeds().out, "NAME  VERSION  UPDATED\n");
    let set = ada.svc_with_stdin("hunter2\n", &["secrets", "set", "API_KEY"]).succeeds();
    set.stderr_contains("set API_KEY (version 1)");
    let again = ada.svc_with_stdin("hunter2\n", &["secrets", "set", "API_KEY", "--json"]).succeeds();
    assert_eq!((&again.json()["name"], &again.json()["version"]), (&json!("API_KEY"), &json!(2)));
    ada.write("key.pem", "hunter2\nhunter2\n");
    let from_file = ada.svc(&["secrets", "set", "TLS_KEY", "--from-file", "key.pem"]).succeeds();
    let listed = ada.svc(&["secrets", "list"]).succeeds();
    assert!(listed.out.lines().any(|line| line.starts_with("API_KEY  2        20")), "{}", listed.out);
    let first = ada.svc(&["secrets", "list", "--limit", "1"]).succeeds();
    first.stderr_contains("more results: --cursor");
    let cursor = first.err.split_whitespace().last().unwrap();
    let last = ada.svc(&["secrets", "list", "--cursor", cursor]).succeeds();
    assert!(!last.out.contains("API_KEY") && last.out.contains("TLS_KEY"), "{}", last.out);
    for ran in [set, again, from_file, listed] {
        assert!(!ran.out.contains("hunter2") && !ran.err.contains("hunter2"), "{ran:?}");
    }

    assert_eq!(ada.json(&["secrets", "delete", "API_KEY"]), json!(null));
    ada.svc(&["secrets", "delete", "API_KEY"]).fails(5);
    assert_eq!(versions(&ada), owned([("TLS_KEY", 1)]));
    let audit = ada.svc(&["audit", "--org", "ada"]).succeeds().out;
    assert!(audit.contains("secret.set") && audit.contains("secret.delete") && !audit.contains("hunter2"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn line_break_at_the_end_belongs_to_a_value_from_a_file_only() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    // With the line break, the value is too large.
    let lines = format!("{}\n", "x\n".repeat(MAX_BYTES / 2));
    ada.svc_with_stdin(&lines, &["secrets", "set", "A"]).succeeds();
    ada.svc_with_stdin(&lines.replacen('\n', "\r\n", 1), &["secrets", "set", "A"]).fails(1);
    ada.write("value", &lines);
    ada.svc(&["secrets", "set", "A", "--from-file", "value"]).fails(1).stderr_contains("value: must have");
    ada.write("value", lines.trim_end());
    ada.svc(&["secrets", "set", "A", "--from-file", "value"]).succeeds();
    assert_eq!(versions(&ada), owned([("A", 2)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_names_and_values_are_rejected() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    // A value is never an argument.
    ada.svc(&["secrets", "set", "A", "b"]).fails(2);
    ada.svc_with_stdin("\n", &["secrets", "set", "A"])
        .fails(2)
        .stderr_contains("no value of A was given: enter it, or pass it on standard input");
    ada.svc(&["secrets", "set", "A", "--from-file", "missing"]).fails(1).stderr_contains("missing: ");
    ada.write("binary", b"\xff\xfe");
    ada.svc(&["secrets", "set", "A", "--from-file", "binary"]).fails(1).stderr_contains("binary: ");
    ada.svc_with_stdin("b", &["secrets", "set", "api_key"]).fails(1).stderr_contains("secretName");
    ada.svc_with_stdin("b", &["secrets", "set", "DB"]).fails(1).stderr_contains("code reserved_name");
    ada.svc_with_stdin("b", &["secrets", "set", "A", "--project", "none"]).fails(5);
    ada.svc_with_stdin("b", &["secrets", "set", ".."]).fails(2);
    assert_eq!(versions(&ada), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn file_is_imported_in_one_step() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    ada.svc_with_stdin("1", &["secrets", "set", "KEPT"]).succeeds();
    ada.svc_with_stdin("1", &["secrets", "set", "REPLACED"]).succeeds();
    ada.write(".env", "# hunter2\nexport REPLACED=hunter2\nADDED='hunter2\nhunter2' # two lines\n\nMORE=\"hunter2\"\n");
    let imported = ada.svc(&["secrets", "import", ".env"]).succeeds();
    imported.stderr_contains("added ADDED, MORE").stderr_contains("replaced REPLACED");
    assert!(!imported.out.contains("hunter2") && !imported.err.contains("hunter2"), "{imported:?}");
    assert!(!imported.out.contains("KEPT"), "{imported:?}");
    assert_eq!(versions(&ada), owned([("ADDED", 1), ("KEPT", 1), ("MORE", 1), ("REPLACED", 2)]));
    let events = ada.json(&["audit", "--org", "ada", "--event", "secret.set"]);
    assert_eq!(events["items"].as_array().unwrap().len(), 3, "{events:#}");

    let list = ada.svc_with_stdin("MORE=2", &["secrets", "import", "-", "--json"]).succeeds().json();
    assert_eq!(list["items"].as_array().unwrap().len(), 4);
    assert_eq!(versions(&ada), owned([("ADDED", 1), ("KEPT", 1), ("MORE", 2), ("REPLACED", 2)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_file_changes_nothing() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    for (text, message) in [
        ("A=1\nhunter2\n", "standard input, line 2: must be NAME=value"),
        ("A=1\nB='hunter2\n", "line 2: the value has no closing quote"),
        ("# nothing", "standard input sets no secrets"),
        ("A=1\nSVC_X=hunter2\n", "code reserved_name"),
        ("A=1\nhunter2=1\n", "line 2: the name must have 1 to 128 characters of A-Z, 0-9 and _"),
        ("A=AAAA\nHUNTER2=\n", "line 2: the value is missing"),
        ("A=AAAA\nHUNTER2====\n", "line 2: the value has only ="),
        (&format!("A=1\nB={}\n", "hunter2".repeat(MAX_BYTES)), "code bad_request"),
    ] {
        let rejected = ada.svc_with_stdin(text, &["secrets", "import", "-"]).fails(1);
        rejected.stderr_contains(message);
        assert!(!rejected.err.to_lowercase().contains("hunter2"), "{rejected:?}");
    }
    ada.svc(&["secrets", "import", ".env"]).fails(1).stderr_contains(".env: ");
    assert_eq!(versions(&ada), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_resealed_and_open_without_the_old_key() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    ada.svc_with_stdin("A=hunter2\nB=hunter2\n", &["secrets", "import", "-"]).succeeds();
    ada.svc_with_stdin("hunter2", &["secrets", "set", "B"]).succeeds();
    let rotate = |keys: &str| {
        let mut rotate = Command::new(program("xtask"));
        rotate.args(["seal", "rotate"]).env("SVC_DATABASE_URL", platform.database.url()).env("SVC_SEALING_KEYS", keys);
        let output = rotate.output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(
            output.status.success() && text.contains("resources.secrets.sealed  rows read: 2  re-sealed: 2\n"),
            "{text}"
        );
    };
    let second = "second:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    rotate(&format!("{second},test:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="));
    rotate(&format!("third:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=,{second}"));
    assert_eq!(versions(&ada), owned([("A", 1), ("B", 2)]));
}

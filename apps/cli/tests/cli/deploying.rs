//! `svc init`, `svc deploy` and `svc rollback`.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::support::{CommandResult, Machine, Platform};

#[tokio::test(flavor = "multi_thread")]
async fn folder_is_initialized_deployed_listed_and_rolled_back() {
    let platform = Platform::start().await;
    let ada = platform.ada();
    ada.svc(&["deploy"]).fails(2).stderr_contains("svc init");
    ada.svc(&["init", "--org", "ada", "--project", "site"]).succeeds().stderr_contains("linked the folder to ada/site");
    ada.write("assets/index.html", "one");
    ada.write("svc.json", "{ \"name\": \"mine\" }");
    let linked = json!({ "api": platform.api, "org": "ada", "project": "site" });
    assert_eq!(ada.json(&["init", "--org", "ada", "--project", "site"]), linked);
    assert_eq!(std::fs::read_to_string(ada.folder.join("svc.json")).unwrap(), "{ \"name\": \"mine\" }");

    // The linked project applies only in the linked organization.
    ada.svc(&["deploy", "--org", "other"]).fails(2).stderr_contains("no project is selected");
    // Without a terminal, svc cannot ask whether to create the project.
    ada.svc(&["deploy", "--no-wait"]).fails(5).stderr_contains("next: `svc deploy --create` creates the project");
    let elsewhere = ["deploy", "--no-wait", "--create", "--org", "nowhere", "--project", "site"];
    ada.svc(&elsewhere).fails(5).stderr_contains("svc orgs list");
    let first = ada.svc(&["deploy", "--no-wait", "--create"]).succeeds();
    first.stderr_contains("created the project ada/site").stderr_contains("deployed to http://site-ada.localhost:8088");
    assert!(first.out.starts_with("version 1 of "), "{first:?}");
    assert!(!first.err.contains("warning: "), "{first:?}");
    ada.write("svc.json", "{ \"storag\": true }");
    let unknown = "warning: svc.json contains unknown keys, which are ignored: storag\n";
    ada.svc(&["deploy", "--no-wait", "--project", "none"]).fails(5).stderr_contains(unknown);
    ada.write("svc.json", "{}");
    ada.write("assets/index.html", "two");
    let second = ada.json(&["deploy", "--no-wait"]);
    assert_eq!((&second["version"], &second["live"], &second["hasWorker"]), (&json!(2), &json!(true), &json!(false)));
    assert_eq!(ada.json(&["rollback", "1", "--no-wait"])["version"], 1);
    ada.svc(&["rollback", "9"]).fails(5);
    let listed = ada.svc(&["deployments"]).succeeds().out;
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[1].starts_with("2  ") && lines[2].starts_with("1        live  pending  "), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn init_replaces_a_damaged_link() {
    let platform = Platform::start().await;
    let ada = platform.ada();
    ada.write(".svc/project.json", "{broken");
    ada.svc(&["deployments"]).fails(1).stderr_contains(".svc/project.json is damaged (");
    let init = ["init", "--org", "ada", "--project", "site"];
    ada.svc(&init).succeeds().stderr_contains("warning: ").stderr_contains("linked the folder to ada/site");
    ada.svc(&["projects", "list"]).succeeds();
}

#[tokio::test(flavor = "multi_thread")]
async fn init_checks_the_names() {
    let platform = Platform::start().await;
    let ada = platform.ada();
    for (org, project, name) in [("ada", "Bad Name!", "project name"), ("-ada", "site", "organization slug")] {
        let option = format!("--org={org}");
        let refused = ada.svc(&["init", &option, "--project", project]).fails(2);
        refused.stderr_contains(&format!("is not a valid {name}"));
    }
    ada.svc(&["init", "--org", "nowhere", "--project", "site"]).fails(5).stderr_contains("svc orgs list");
    assert!(!ada.folder.join(".svc").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn deploys_with_a_token_that_cannot_read_the_project() {
    let platform = Platform::start().await;
    let mut ada = platform.ada_with_site();
    let token = ada.svc(&["tokens", "create", "ci", "--scope", "deploy"]).succeeds().out;
    ada.environment.insert("SVC_CLI_TOKEN", token.trim().to_owned());
    // Without `--no-wait`, svc does not wait for a state that the token cannot read.
    let deployed = ada.svc(&["deploy"]).succeeds();
    deployed.stderr_contains("deployed to http://site-ada.localhost:8088");
    let unobserved = |ran: &CommandResult| {
        ran.stderr_contains("warning: svc cannot check whether the deployment is served: ");
        ran.stderr_contains("next: create a token with `svc tokens create <name> --scope project:read`");
    };
    unobserved(&deployed);
    let rolled_back = ada.svc(&["rollback", "1"]).succeeds();
    rolled_back.stderr_contains("version 1 is live again");
    unobserved(&rolled_back);
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_records_the_git_provenance() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    assert_eq!(ada.json(&["deploy", "--no-wait"])["git"]["commit"], json!(null));
    git(&ada, &["init", "--quiet", "--initial-branch", "größe"]);
    // The repository has no commit yet.
    assert_eq!(ada.json(&["deploy", "--no-wait"])["git"]["commit"], json!(null));
    git(&ada, &["add", "svc.json", "assets"]);
    git(&ada, &["commit", "--quiet", "-m", "site: say hello — 100 %\n\nAnd more."]);
    ada.write(".gitignore", ".svc\n.gitignore\n");
    let clean = ada.json(&["deploy", "--no-wait"])["git"].clone();
    assert_eq!(clean["commit"].as_str().unwrap().len(), 40);
    assert_eq!(
        (&clean["message"], &clean["branch"], &clean["dirty"]),
        (&json!("site: say hello — 100 %"), &json!("größe"), &json!(false))
    );
    ada.write("assets/index.html", "changed");
    git(&ada, &["checkout", "--quiet", "--detach"]);
    let dirty = ada.json(&["deploy", "--no-wait"])["git"].clone();
    assert_eq!((&dirty["branch"], &dirty["dirty"]), (&json!(null), &json!(true)));
    let listed = ada.svc(&["deployments"]).succeeds().out;
    assert!(listed.contains("+ site: say hello"), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn git_provenance_is_truncated_to_the_limits_of_the_api() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    let (line, branch) = ("é".repeat(300), format!("{}/{}é{}", "a".repeat(200), "b".repeat(53), "c".repeat(100)));
    git(&ada, &["init", "--quiet", "--initial-branch", &branch]);
    git(&ada, &["add", "svc.json"]);
    git(&ada, &["commit", "--quiet", "-m", &format!("{line}\nthe same paragraph")]);
    let git_info = ada.json(&["deploy", "--no-wait"])["git"].clone();
    assert_eq!(git_info["message"], "é".repeat(200));
    assert_eq!(git_info["branch"], branch[..254]);
    git(&ada, &["commit", "--quiet", "--amend", "-m", "one\ntwo"]);
    assert_eq!(ada.json(&["deploy", "--no-wait"])["git"]["message"], "one");
}

fn git(machine: &Machine, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.current_dir(&machine.folder).args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]);
    assert!(command.args(arguments).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn deploys_the_examples() {
    let platform = Platform::start().await;
    let ada = platform.ada();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for (name, worker, assets) in
        [("static-site", false, 3), ("worker-site", true, 2), ("guest-book", true, 1), ("chat", true, 3)]
    {
        let folder = examples.join(name).display().to_string();
        // The free plan has fewer projects than there are examples.
        let arguments = ["deploy", &folder, "--org", "ada", "--project", "site", "--create", "--no-wait"];
        let deployed = ada.json(&arguments);
        assert_eq!((&deployed["hasWorker"], &deployed["assetCount"]), (&json!(worker), &json!(assets)), "{name}");
    }
}

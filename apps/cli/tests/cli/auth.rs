//! `svc auth`.

use serde_json::{Value, json};

use crate::reverse_proxy;
use crate::support::{Machine, Platform};

/// Starts the platform with Ada's site. Its project has a database, but no node that creates it.
async fn with_database() -> (Platform, Machine) {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    platform
        .database
        .run(
            "INSERT INTO databases.sequences (project_id, revision) SELECT id, 1 FROM projects.projects;
             INSERT INTO databases.databases (id, project_id, created_at, key_id, sealed, verifier)
             SELECT id, id, now(), 'test', '', '' FROM projects.projects;
             INSERT INTO convergence.placements (project_id, state, epoch, created_at)
             SELECT id, 'pending', 1, now() FROM projects.projects;",
        )
        .await;
    (platform, ada)
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_is_enabled_changed_and_disabled() {
    let (_platform, ada) = with_database().await;
    let auth = |arguments: &[&str]| ada.svc(&[&["auth"], arguments].concat());
    let callback = "callback  http://site-ada.localhost:8088/__svc/auth/callback/<provider>\n";
    let state = |enabled: &str| {
        format!("enabled   {enabled}\nsessions  30 days\nname      –\ncolor     –\nlogo      –\n{callback}")
    };
    assert_eq!(auth(&["status"]).succeeds().out, state("no"));
    auth(&["set", "--session-days", "7"]).fails(5).stderr_contains("`svc auth enable`");
    let enabled = auth(&["enable"]).succeeds();
    enabled.stderr_contains("env.auth.users").stderr_contains("svc auth provider set");
    assert_eq!(enabled.out, state("yes"));
    let set = [
        "set",
        "--session-days",
        "7",
        "--brand-name",
        "Ada's shop",
        "--brand-color",
        "#0a7cff",
        "--brand-logo-url",
        "https://ada.example/logo.svg",
    ];
    let expected =
        "sessions  7 days\nname      Ada's shop\ncolor     #0a7cff\nlogo      https://ada.example/logo.svg\n";
    assert!(auth(&set).succeeds().out.contains(expected));
    let reset = ada.json(&["auth", "set", "--reset", "brand-color", "--reset", "brand-logo-url"]);
    let settings = json!({ "sessionDays": 7, "brandName": "Ada's shop", "brandColor": null, "brandLogoUrl": null });
    assert_eq!(reset["settings"], settings);
    auth(&["set"]).fails(2);
    auth(&["set", "--session-days", "0"]).fails(1).stderr_contains("sessionDays: must be at least 1");
    auth(&["set", "--reset", "session-days"]).fails(2);
    auth(&["disable"]).fails(2).stderr_contains("nothing was disabled: confirm with --yes");
    assert_eq!(ada.json(&["auth", "disable", "--yes"]), Value::Null);
    auth(&["disable", "--yes"]).succeeds().stderr_contains("users, settings and providers are kept");
    assert_eq!(ada.json(&["auth", "status"])["settings"], settings);
    ada.svc(&["auth", "status", "--project", "none"]).fails(5);
}

#[tokio::test(flavor = "multi_thread")]
async fn providers_are_set_with_a_secret_from_stdin_and_deleted() {
    let (_platform, ada) = with_database().await;
    ada.svc(&["auth", "enable"]).succeeds();
    let set =
        ada.svc_with_stdin("hunter2\n", &["auth", "provider", "set", "codehost", "--client-id", "shop"]).succeeds();
    set.stderr_contains("registered codehost");
    assert!(set.out.contains("provider  codehost (shop)\n"), "{set:?}");
    assert!(!(set.out + &set.err).contains("hunter2"));
    let replaced = ["auth", "provider", "set", "codehost", "--client-id", "new", "--json"];
    let replaced: Value = serde_json::from_str(&ada.svc_with_stdin("hunter3", &replaced).succeeds().out).unwrap();
    assert_eq!(replaced["providers"], json!([{ "provider": "codehost", "clientId": "new" }]));
    ada.svc(&["auth", "provider", "set", "codehost", "--client-id", "new"]).fails(2);
    ada.svc(&["auth", "provider", "set", "github", "--client-id", "new"]).fails(2);
    ada.svc(&["auth", "provider", "set", "codehost"]).fails(2);
    ada.svc_with_stdin("x", &["auth", "provider", "set", "codehost", "--client-id", ""])
        .fails(1)
        .stderr_contains("invalid_provider");
    ada.svc(&["auth", "provider", "delete", "codehost"]).succeeds().stderr_contains("deleted codehost");
    ada.svc(&["auth", "provider", "delete", "codehost"]).succeeds();
    assert_eq!(ada.json(&["auth", "status"])["providers"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn deploy_enables_declared_sign_in() {
    let (_platform, ada) = with_database().await;
    ada.write("worker/index.js", "export default { fetch: () => new Response('') }");
    ada.write("svc.json", r#"{ "auth": true }"#);
    let deployed = ada.svc(&["deploy", "--no-wait"]).succeeds();
    deployed.stderr_contains("enabled auth").stderr_contains("bindings: env.assets, env.db, env.auth\n");
    assert_eq!(ada.json(&["auth", "status"])["granted"], true);
    let again = ada.svc(&["deploy", "--no-wait"]).succeeds();
    assert!(!again.err.contains("enabled"), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_without_a_database_is_explained() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    ada.svc(&["auth", "enable"]).fails(1).stderr_contains("database_required").stderr_contains("`svc db enable`");
    // The database, which a deploy enables first, has no home node here.
    ada.write("svc.json", r#"{ "auth": true, "storage": false }"#);
    let deployed = ada.svc(&["deploy", "--no-wait"]).fails(8);
    deployed.stderr_contains("failed to enable database").stderr_contains("failed to enable auth");
    assert!(!deployed.err.contains("storage"), "{deployed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deploy_warns_about_resources_that_an_older_api_does_not_support() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    ada.write("svc.json", r#"{ "auth": true, "storage": false }"#);
    let token = ada.svc(&["tokens", "create", "ci", "--scope", "deploy", "--scope", "project:read"]).succeeds().out;
    let older = reverse_proxy::start(&platform, |it| (it == "GET /v1/openapi.json").then_some(200)).await;
    let mut deploy = ada.command(&["deploy", "--no-wait", "--api", &older]);
    let output = deploy.env("SVC_CLI_TOKEN", token.trim()).spawn().unwrap().wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    for resource in ["database", "auth"] {
        assert!(stderr.contains(&format!("declares {resource}, which this API does not support yet")), "{stderr}");
    }
    assert!(!stderr.contains("storage"), "{stderr}");
}

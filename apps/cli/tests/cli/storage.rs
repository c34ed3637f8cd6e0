//! `svc storage`, and the resources that `svc deploy` enables.

use serde_json::json;

use crate::reverse_proxy;
use crate::support::Platform;

#[tokio::test(flavor = "multi_thread")]
async fn storage_keeps_its_prefix_when_disabled() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    let never = ada.svc(&["storage", "status"]).succeeds().out;
    assert_eq!(never, "enabled   no\nused      0 B of 1.00 GiB\nreported  –\nprefix    –\n");
    let enabled = ada.json(&["storage", "enable"]);
    assert_eq!((&enabled["enabled"], &enabled["usedBytes"]), (&json!(true), &json!(0)));
    assert_eq!(ada.json(&["storage", "enable"]), enabled);
    let prefix = enabled["prefix"].as_str().unwrap();
    let status = ada.svc(&["storage", "status"]).succeeds().out;
    assert!(status.starts_with("enabled   yes\n") && status.contains(prefix), "{status}");
    assert_eq!(ada.json(&["storage", "disable"]), json!(null));
    ada.svc(&["storage", "disable"]).succeeds().stderr_contains("its objects are kept");
    let status = ada.json(&["storage", "status"]);
    assert_eq!((&status["enabled"], &status["prefix"]), (&json!(false), &json!(prefix)));
    ada.svc(&["storage", "status", "--project", "none"]).fails(5);
}

#[tokio::test(flavor = "multi_thread")]
async fn deploy_enables_declared_storage_once_and_prints_the_bindings() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    ada.svc_with_stdin("hunter2", &["secrets", "set", "ADMIN_KEY"]).succeeds();
    ada.write("worker/index.js", "export default { fetch: () => new Response('') }");
    ada.write("svc.json", r#"{ "storage": true }"#);
    let first = ada.svc(&["deploy", "--no-wait"]).succeeds();
    first.stderr_contains("enabled storage").stderr_contains("bindings: env.assets, env.storage, env.ADMIN_KEY\n");
    assert_eq!(ada.json(&["storage", "status"])["enabled"], true);
    let second = ada.svc(&["deploy", "--no-wait"]).succeeds();
    assert!(!second.err.contains("enabled storage"), "{second:?}");
    // The resource stays enabled without the declaration.
    ada.write("svc.json", "{}");
    ada.svc(&["deploy", "--no-wait"]).succeeds().stderr_contains("bindings: env.assets, env.storage, env.ADMIN_KEY\n");
    assert!(!(first.err + &second.err).contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn deploy_of_a_site_without_code_prints_no_bindings() {
    let platform = Platform::start().await;
    let deployed = platform.ada_with_site().svc(&["deploy", "--no-wait"]).succeeds();
    assert!(!deployed.err.contains("bindings"), "{deployed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deploy_completes_and_reports_a_resource_that_it_failed_to_enable() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    ada.write("worker/index.js", "export default { fetch: () => new Response('') }");
    ada.write("svc.json", r#"{ "storage": true }"#);
    let scopes = ["deploy", "project:read", "project:write"].map(|scope| ["--scope", scope]).concat();
    let token = ada.svc(&[&["tokens", "create", "ci"], scopes.as_slice()].concat()).succeeds().out;
    for (version, request) in [(1, "POST /v1/orgs/ada/projects/site/storage"), (2, "GET /v1/openapi.json")] {
        let proxy = reverse_proxy::start(&platform, move |it| (it == request).then_some(500)).await;
        let mut deploy = ada.command(&["deploy", "--no-wait", "--json", "--api", &proxy]);
        let output = deploy.env("SVC_CLI_TOKEN", token.trim()).spawn().unwrap().wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(8), "{stderr}");
        for message in ["warning: failed to", "deployed to ", "error: deployed, but failed to enable storage"] {
            assert!(stderr.contains(message), "{message:?} is not in: {stderr}");
        }
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["version"], version);
    }
    assert_eq!(ada.json(&["storage", "status"])["enabled"], false);
    ada.svc(&["deploy", "--no-wait"]).succeeds().stderr_contains("enabled storage");
}

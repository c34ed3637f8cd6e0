//! Waiting until a deployment is served. No node runs, so a deployment stays pending until another one supersedes it, or
//! the test sets its status.

use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::reverse_proxy;
use crate::support::{Machine, Platform};

/// Waits until the condition holds or the command exits.
async fn wait_until(command: &mut Child, condition: impl Fn() -> bool) {
    while !condition() && command.try_wait().unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn deployment_count(machine: &Machine) -> usize {
    machine.json(&["deployments"])["items"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_survives_transient_errors_of_the_api() {
    const ERRORS: [u16; 3] = [502, 429, 500];
    let platform = Platform::start().await;
    let polls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&polls);
    let proxy = reverse_proxy::start(&platform, move |request| match request {
        "GET /v1/orgs/ada/projects/site/deployments/1" => ERRORS.get(counter.fetch_add(1, Ordering::SeqCst)).copied(),
        // The URL of the project stays unknown, but the deployment succeeds.
        "GET /v1/orgs/ada/projects/site" => Some(502),
        _ => None,
    });
    let ada = platform.ada_with_site();
    let proxy = proxy.await;
    let mut deploy = ada.command(&["deploy", "--json", "--api", &proxy]);
    let token = ada.svc(&["tokens", "create", "ci", "--scope", "deploy", "--scope", "project:read"]).succeeds().out;
    let mut deploy = deploy.env("SVC_CLI_TOKEN", token.trim()).spawn().unwrap();
    wait_until(&mut deploy, || polls.load(Ordering::SeqCst) > ERRORS.len()).await;
    let mut newer = ada.command(&["deploy", "--no-wait", "--api", &proxy]);
    let newer = newer.env("SVC_CLI_TOKEN", token.trim()).spawn().unwrap().wait_with_output().unwrap();
    let stderr = String::from_utf8(newer.stderr).unwrap();
    assert_eq!((newer.status.code(), stderr.contains("deployed to ada/site")), (Some(0), true), "{stderr}");
    let output = deploy.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let superseded = stderr.contains("version 1 was superseded by a newer deployment");
    assert_eq!((output.status.code(), superseded), (Some(0), true), "{stderr}");
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["version"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn error_after_the_deployment_sets_the_exit_code_and_prints_no_second_document() {
    let platform = Platform::start().await;
    for reads_stdout in [true, false] {
        let ada = platform.ada_with_site();
        let mut deploy = ada.command(&["deploy", "--json"]).spawn().unwrap();
        if !reads_stdout {
            drop(deploy.stdout.take());
        }
        wait_until(&mut deploy, || deployment_count(&ada) == 1).await;
        ada.svc(&["projects", "delete", "site", "--yes"]).succeeds();
        let output = deploy.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.contains("code not_found")), (Some(5), true), "{stderr}");
        if reads_stdout {
            assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["version"], 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_deployment_names_the_version_that_is_still_served() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    ada.svc(&["deploy", "--no-wait"]).succeeds();
    platform.database.run("UPDATE projects.deployments SET status = 'serving'").await;
    let mut deploy = ada.command(&["deploy"]).spawn().unwrap();
    wait_until(&mut deploy, || deployment_count(&ada) == 2).await;
    let fail = "UPDATE projects.deployments SET status = 'failed', status_message = 'No code.' WHERE version = 2";
    platform.database.run(fail).await;
    let output = deploy.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let message = "version 2 is deployed but failed, and version 1 is still served: No code.";
    assert_eq!((output.status.code(), stderr.contains(message)), (Some(8), true), "{stderr}");
    let shown = ada.svc(&["projects", "show", "site"]).succeeds().out;
    assert!(shown.contains("version 2 of ") && shown.contains(", failed\n"), "{shown}");
}

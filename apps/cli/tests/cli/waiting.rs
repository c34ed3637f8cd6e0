//! Waiting until a deployment is served. No node runs here: what is deployed stays pending until another one is.

use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::front;
use crate::kit::{Machine, Platform};

/// Comes back when it is so, or when the command has ended.
async fn until(command: &mut Child, so: impl Fn() -> bool) {
    while !so() && command.try_wait().unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn deployed(machine: &Machine) -> usize {
    machine.json(&["deployments"])["items"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_outlasts_an_api_that_is_away_for_a_moment() {
    const AWAY: [u16; 3] = [502, 429, 500];
    let platform = Platform::start().await;
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    let front = front::before(&platform, move |request| match request {
        "GET /v1/orgs/ada/projects/site/deployments/1" => AWAY.get(counted.fetch_add(1, Ordering::SeqCst)).copied(),
        // Where it is seen nobody learns; it is deployed all the same.
        "GET /v1/orgs/ada/projects/site" => Some(502),
        _ => None,
    });
    let ada = platform.ada_with_site();
    let front = front.await;
    let mut deploy = ada.command(&["deploy", "--json", "--api", &front]);
    let token = ada.svc(&["tokens", "create", "ci", "--scope", "deploy", "--scope", "project:read"]).succeeds().out;
    let mut deploy = deploy.env("SVC_CLI_TOKEN", token.trim()).spawn().unwrap();
    until(&mut deploy, || looks.load(Ordering::SeqCst) > AWAY.len()).await;
    ada.svc(&["deploy", "--no-wait"]).succeeds();
    let ended = deploy.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!((ended.status.code(), said.contains("deployed to ada/site")), (Some(0), true), "{said}");
    assert_eq!(serde_json::from_slice::<Value>(&ended.stdout).unwrap()["version"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_after_the_deployment_is_no_second_document_and_counts_when_nobody_reads() {
    let platform = Platform::start().await;
    for is_read in [true, false] {
        let ada = platform.ada_with_site();
        let mut deploy = ada.command(&["deploy", "--json"]).spawn().unwrap();
        if !is_read {
            drop(deploy.stdout.take());
        }
        until(&mut deploy, || deployed(&ada) == 1).await;
        ada.svc(&["projects", "delete", "site", "--yes"]).succeeds();
        let ended = deploy.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), said.contains("code not_found")), (Some(5), true), "{said}");
        if is_read {
            assert_eq!(serde_json::from_slice::<Value>(&ended.stdout).unwrap()["version"], 1);
        }
    }
}

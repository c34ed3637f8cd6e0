//! Reports to the control plane.

use crate::control_plane::{ControlPlane, State, archive};
use crate::running::{Dir, RunningNode, until};

#[tokio::test(flavor = "multi_thread")]
async fn served_versions_are_reported_after_errors_and_restarts() {
    let (mut core, dir) = (ControlPlane::start().await, Dir::new());
    core.deploy("shop", &[("assets/index.html", b"one")]);
    let running = RunningNode::start(&core, &dir).await;
    running.visitor.sees("shop.localhost", "/", 200, "one").await;
    until("the first report", || core.last_report("shop") == Some((1, State::Serving))).await;
    // A deployment of the same files is a new version.
    core.deploy("shop", &[("assets/index.html", b"one")]);
    until("the second report", || core.last_report("shop") == Some((2, State::Serving))).await;
    core.fail_reports(2);
    core.deploy("shop", &[("assets/index.html", b"three")]);
    running.visitor.sees("shop.localhost", "/", 200, "three").await;
    until("a report after two failed requests", || core.last_report("shop") == Some((3, State::Serving))).await;
    core.stop().await;
    running.stop().await;
    core.restart().await;
    let before = core.batches();
    let running = RunningNode::start(&core, &dir).await;
    until("a report after a restart", || core.batches().len() > before.len()).await;
    assert_eq!(core.last_report("shop"), Some((3, State::Serving)));
    let numbers: Vec<i64> = core.batches().into_iter().map(|(number, _)| number).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_have_at_most_50_reports() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    for number in 0..120 {
        core.deploy(&format!("p{number}"), &[("assets/index.html", b"same")]);
    }
    let running = RunningNode::start(&core, &dir).await;
    until("all reports", || (0..120).all(|number| core.last_report(&format!("p{number}")).is_some())).await;
    assert_eq!(core.batches().iter().map(|(_, size)| *size).max(), Some(50));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_revision_of_the_same_version_is_reported_again() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    core.deploy("shop", &[("assets/index.html", b"one")]);
    let running = RunningNode::start(&core, &dir).await;
    until("the first report", || core.batches().len() == 1).await;
    core.republish("shop");
    until("another one", || core.batches().len() == 2).await;
    assert_eq!(core.last_report("shop"), Some((1, State::Serving)));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_bundle_is_reported_as_failed_and_retried() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let archive = archive(&[("assets/index.html", b"late")]);
    let bundle = core.set_desired("shop", &["shop.localhost"], &archive);
    let running = RunningNode::start(&core, &dir).await;
    until("a report that it failed", || core.last_report("shop") == Some((1, State::Failed))).await;
    core.put(&bundle, archive);
    running.visitor.sees("shop.localhost", "/", 200, "late").await;
    until("a report that it is served", || core.last_report("shop") == Some((1, State::Serving))).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_deployment_of_an_unavailable_bundle_is_reported_as_failed() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let archive = archive(&[("assets/index.html", b"late")]);
    let deploy = |project: &str| core.set_desired(project, &[&format!("{project}.localhost")], &archive);
    deploy("shop");
    let running = RunningNode::start(&core, &dir).await;
    until("the first report", || core.last_report("shop") == Some((1, State::Failed))).await;
    deploy("shop");
    until("a report of the same bundle", || core.last_report("shop") == Some((2, State::Failed))).await;
    let bundle = deploy("blog");
    until("a report of another project", || matches!(core.last_report("blog"), Some((_, State::Failed)))).await;
    core.put(&bundle, archive.clone());
    for host in ["shop.localhost", "blog.localhost"] {
        running.visitor.sees(host, "/", 200, "late").await;
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_report_does_not_block_others() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    core.reject_reports_on("bad");
    for project in ["one", "bad", "two", "three"] {
        core.deploy(project, &[("assets/index.html", project.as_bytes())]);
    }
    let running = RunningNode::start(&core, &dir).await;
    until("the other reports", || ["one", "two", "three"].iter().all(|it| core.last_report(it).is_some())).await;
    assert_eq!(core.last_report("bad"), None);
    running.stop().await;
}

//! What the control plane is told.

use crate::control_plane::{ControlPlane, State, archive};
use crate::running::{Dir, Running, until};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_served_is_reported_also_after_a_long_absence() {
    let (mut core, dir) = (ControlPlane::start().await, Dir::new());
    core.deploy("shop", &[("assets/index.html", b"one")]);
    let running = Running::start(&core, &dir).await;
    running.visitor.sees("shop.localhost", "/", 200, "one").await;
    until("the first report", || core.last_report("shop") == Some((1, State::Serving))).await;
    // The same files are another version all the same.
    core.deploy("shop", &[("assets/index.html", b"one")]);
    until("the second report", || core.last_report("shop") == Some((2, State::Serving))).await;
    core.lose_reports(2);
    core.deploy("shop", &[("assets/index.html", b"three")]);
    running.visitor.sees("shop.localhost", "/", 200, "three").await;
    until("a report after two that were lost", || core.last_report("shop") == Some((3, State::Serving))).await;
    core.go_away().await;
    running.stop().await;
    core.come_back().await;
    let before = core.batches();
    let running = Running::start(&core, &dir).await;
    until("a report after a restart", || core.batches().len() > before.len()).await;
    assert_eq!(core.last_report("shop"), Some((3, State::Serving)));
    let numbers: Vec<i64> = core.batches().into_iter().map(|(number, _)| number).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_projects_are_reported_in_batches_that_are_not_too_large() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    for number in 0..120 {
        core.deploy(&format!("p{number}"), &[("assets/index.html", b"same")]);
    }
    let running = Running::start(&core, &dir).await;
    until("all of them", || (0..120).all(|number| core.last_report(&format!("p{number}")).is_some())).await;
    assert!(core.batches().iter().all(|(_, size)| *size <= 50));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wanted_again_is_reported_again() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    core.deploy("shop", &[("assets/index.html", b"one")]);
    let running = Running::start(&core, &dir).await;
    until("the first report", || core.batches().len() == 1).await;
    core.want_again("shop");
    until("another one", || core.batches().len() == 2).await;
    assert_eq!(core.last_report("shop"), Some((1, State::Serving)));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_is_not_to_be_had_is_reported_and_got_all_the_same_later() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let archive = archive(&[("assets/index.html", b"late")]);
    let bundle = core.want("shop", &["shop.localhost"], &archive);
    let running = Running::start(&core, &dir).await;
    until("a report that it failed", || core.last_report("shop") == Some((1, State::Failed))).await;
    core.put(&bundle, archive);
    running.visitor.sees("shop.localhost", "/", 200, "late").await;
    until("a report that it is served", || core.last_report("shop") == Some((1, State::Serving))).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_is_refused_holds_up_no_other() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    core.refuse_reports_on("bad");
    for project in ["one", "bad", "two", "three"] {
        core.deploy(project, &[("assets/index.html", project.as_bytes())]);
    }
    let running = Running::start(&core, &dir).await;
    until("the others", || ["one", "two", "three"].iter().all(|it| core.last_report(it).is_some())).await;
    assert_eq!(core.last_report("bad"), None);
    running.stop().await;
}

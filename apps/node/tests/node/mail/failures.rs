//! Failures of `email()`, of the control plane and of the node.

use std::time::Duration;

use actix_web::web::Bytes;
use protocol::DeliveryResult;
use tokio::time::timeout;

use super::{HOST, Rig, address, mail};
use crate::control_plane::ControlPlane;
use crate::running::{Dir, RunningNode, until};
use crate::timeout::TIMEOUT;
use crate::workers::{with_workers, workerd};

fn failed(error: &str) -> DeliveryResult {
    DeliveryResult::Failed(error.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn result_names_the_error_or_the_reason() {
    let Some(rig) = Rig::start().await else { return };
    for (mode, result) in [
        ("throw", failed("TypeError: the error of the test")),
        ("throwText", failed("a text")),
        ("throwObject", failed("email() threw an object that has no text.")),
        ("throwLater", failed("Error: later")),
        ("reject", DeliveryResult::Rejected("first  second".to_owned())),
        ("rejectWithoutReason", DeliveryResult::Rejected(String::new())),
        ("rejectOddly", DeliveryResult::Rejected("\u{fffd}".repeat(1000))),
        ("never", failed("The runtime ended email(), because it waits for a promise that nothing resolves.")),
        ("ignore", DeliveryResult::Handled),
    ] {
        assert_eq!(rig.result_of(mail(mode)).await, result, "{mode}");
    }
    let DeliveryResult::Failed(long) = rig.result_of(mail("throwLong")).await else { panic!("not failed") };
    assert_eq!(long.len(), 1000);
    rig.has_metrics(&[
        r#"svc_node_mail_deliveries_total{result="failed"} 6"#,
        r#"svc_node_mail_deliveries_total{result="rejected"} 3"#,
        r#"svc_node_mail_deliveries_total{result="handled"} 1"#,
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_handler_ends_at_its_timeout() {
    let Some(workerd) = workerd() else { return };
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    core.set_part("app", "email", address("app"));
    core.deploy("app", &[("worker/index.js", include_bytes!("worker.js"))]);
    let mut config = with_workers(&core, &dir, workerd);
    config.workers.as_mut().unwrap().email_timeout = Duration::from_secs(5);
    let node = RunningNode::start_as(&config).await;
    node.visitor.sees(HOST, "/granted", 200, "true").await;
    let hanging = core.receive_mail("app", mail("hang"));
    assert_eq!(core.mail_result(&hanging).await, failed("email() did not return within 5 seconds."));
    let next = core.receive_mail("app", mail("ignore"));
    assert_eq!(core.mail_result(&next).await, DeliveryResult::Handled);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_handlers_do_not_delay_other_mail() {
    let Some(rig) = Rig::start().await else { return };
    rig.core.set_part("other", "email", address("other"));
    rig.core.deploy("other", &[("worker/index.js", include_bytes!("worker.js"))]);
    rig.visitor().sees("other.localhost", "/granted", 200, "true").await;
    // More than the control plane gives out at the same time.
    let hanging: Vec<String> = (0..20).map(|_| rig.core.receive_mail("other", mail("hang"))).collect();
    let count_running = || hanging.iter().filter(|id| rig.core.mail_attempts(id) == 1).count();
    until("the hanging handlers", || count_running() == 5).await;
    for mode in ["ignore", "throw"] {
        rig.result_of(mail(mode)).await;
    }
    // A mail of the same project is handled unless several others hang.
    let [first, second] = [mail("hang"), mail("ignore")].map(|raw| rig.core.receive_mail("app", raw));
    assert_eq!(rig.core.mail_result(&second).await, DeliveryResult::Handled);
    until("the call of the hanging handler", || rig.core.mail_attempts(&first) == 1).await;
    assert_eq!(count_running(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn process_that_stops_fails_only_the_current_mail() {
    let Some(rig) = Rig::start().await else { return };
    assert_eq!(rig.result_of(mail("allocate")).await, failed("The code stopped before email() returned."));
    // The process starts again for the next mail, after a delay.
    let next = rig.core.receive_mail("app", mail("ignore"));
    while rig.core.mail_result(&next).await != DeliveryResult::Handled {
        rig.core.redeliver_mail(&next);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_that_cannot_be_read_is_not_handled() {
    let Some(rig) = Rig::start().await else { return };
    let raw = Bytes::from(mail("describe"));
    for size in [raw.len() + 1, raw.len() - 1, 0] {
        let id = rig.core.receive_mail_of_size(size, "app", raw.clone());
        assert_eq!(rig.core.mail_result(&id).await, failed("The node could not read the mail."), "{size}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn project_without_a_live_deployment_is_retried() {
    let Some(rig) = Rig::start().await else { return };
    rig.core.set_part("new", "email", address("new"));
    let id = rig.core.receive_mail("new", mail("ignore"));
    assert_eq!(rig.core.mail_result(&id).await, failed("The project has no live deployment."));
    rig.core.deploy("new", &[("worker/index.js", include_bytes!("worker.js"))]);
    rig.visitor().sees("new.localhost", "/granted", 200, "true").await;
    rig.core.redeliver_mail(&id);
    assert_eq!(rig.core.mail_result(&id).await, DeliveryResult::Handled);
}

#[tokio::test(flavor = "multi_thread")]
async fn result_is_reported_until_the_control_plane_accepts_it() {
    let Some(mut rig) = Rig::start().await else { return };
    rig.core.fail_mail_results(2);
    let id = rig.core.receive_mail("app", mail("ignore"));
    assert_eq!(rig.core.mail_result(&id).await, DeliveryResult::Handled);
    assert_eq!(rig.seen().await, [id]);
    // The control plane stops before it accepts the result.
    rig.core.fail_mail_results(usize::MAX);
    let during = rig.core.receive_mail("app", mail("ignore"));
    rig.visitor().sees(HOST, "/seen", 200, &during).await;
    rig.0.core.stop().await;
    rig.core.fail_mail_results(0);
    rig.0.core.restart().await;
    assert_eq!(rig.core.mail_result(&during).await, DeliveryResult::Handled);
    // A rejected result is not repeated, and does not end the deliveries.
    assert_eq!(rig.result_of(mail("ignore")).await, DeliveryResult::Handled);
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_names_the_mails_in_progress() {
    let Some(rig) = Rig::start().await else { return };
    let hanging = rig.core.receive_mail("app", mail("hang"));
    rig.core.fail_mail_results(usize::MAX);
    let unreported = rig.core.receive_mail("app", mail("ignore"));
    until("both mails", || rig.core.mail_in_progress() == [&*hanging, &unreported]).await;
    rig.core.fail_mail_results(0);
    assert_eq!(rig.core.mail_result(&unreported).await, DeliveryResult::Handled);
    // Each mail causes another claim.
    let without_reported = async {
        while rig.core.mail_in_progress().contains(&unreported) {
            rig.result_of(mail("ignore")).await;
        }
    };
    timeout(TIMEOUT, without_reported).await.unwrap();
    assert!(rig.core.mail_in_progress().contains(&hanging));
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_node_receives_the_mail_again() {
    let Some(mut rig) = Rig::start().await else { return };
    let hanging = rig.core.receive_mail("app", mail("hang"));
    rig.core.fail_mail_results(usize::MAX);
    let unreported = rig.core.receive_mail("app", mail("ignore"));
    until("both calls", || [&hanging, &unreported].iter().all(|id| rig.core.mail_attempts(id) == 1)).await;
    for id in [&hanging, &unreported] {
        rig.visitor().sees(HOST, "/seen", 200, id).await;
    }
    rig.0.kill();
    rig.core.fail_mail_results(0);
    rig.0.restart().await;
    // The lease ends. The process is not running: the mail starts it.
    rig.core.redeliver_mail(&unreported);
    assert_eq!(rig.core.mail_result(&unreported).await, DeliveryResult::Handled);
    assert_eq!((rig.seen().await, rig.core.mail_attempts(&unreported)), (vec![unreported.clone()], 2));
}

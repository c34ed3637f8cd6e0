//! Kinds of reports: each goes to the context that registered for it, in the order of the batch.

use std::sync::{Arc, Mutex};

use convergence::{AlreadyRegistered, Convergence, ConvergenceError, ReportReceiver};
use kernel::{Failure as _, NodeId, ProjectId};
use protocol::{Batch, DeploymentReport, DeploymentState, Receipt, Report, ReportKind};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::Connection;

use crate::kit::{Kit, Seen, embedded, site};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Usage {
    bytes: u64,
}

impl ReportKind for Usage {
    const NAME: &'static str = "usage";
}

/// Another context that receives reports.
#[derive(Default)]
struct Meter(Mutex<Vec<(ProjectId, u64)>>);

#[async_trait::async_trait]
impl ReportReceiver<Usage> for Meter {
    async fn receive(&self, _: &mut Connection, project: ProjectId, report: Usage) -> store::Result<()> {
        if report.bytes == 0 {
            return Err(store::Error::inconsistent("told to fail"));
        }
        self.0.lock().unwrap().push((project, report.bytes));
        Ok(())
    }
}

async fn metered(kit: &Kit) -> (NodeId, ProjectId, Arc<Meter>, Convergence) {
    let (meter, mut builder) = (Arc::<Meter>::default(), embedded(kit.store.clone()));
    builder.receive::<Usage>(meter.clone()).unwrap();
    builder.receive::<DeploymentReport>(kit.deployments.clone()).unwrap();
    let (node, project) = (kit.node("edge").await.node.id, kit.project());
    kit.converge(project, Some(site(1))).await;
    (node, project, meter, builder.build())
}

fn usage(project: ProjectId, bytes: u64) -> Report {
    Report::new(project.to_string(), &Usage { bytes }).unwrap()
}

fn serving(project: ProjectId) -> Report {
    let report = DeploymentReport { version: 1, state: DeploymentState::Serving, message: None };
    Report::new(project.to_string(), &report).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_goes_to_the_context_that_registered_for_it() {
    let kit = Kit::start().await;
    let (node, project, meter, convergence) = metered(&kit).await;
    let stranger = kit.project();
    let reports = vec![usage(project, 1), serving(project), usage(stranger, 7), usage(project, 2)];
    let batch = Batch { batch: 1, reports };
    for _ in 0..2 {
        assert_eq!(convergence.report(node, batch.clone()).await.unwrap(), Receipt { batch: 1 });
    }
    assert_eq!(*meter.0.lock().unwrap(), [(project, 1), (project, 2)]);
    assert_eq!(*kit.deployments.0.lock().unwrap(), [(project, 1, DeploymentState::Serving, None)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_with_a_report_that_cannot_be_read_is_refused_as_a_whole() {
    let kit = Kit::start().await;
    let (node, project, meter, convergence) = metered(&kit).await;
    let raw = |kind: &str, report| Report { project: project.to_string(), kind: kind.to_owned(), report };
    let of_nobody = Report { project: "prj_1".to_owned(), ..usage(project, 1) };
    for (refused, path, message) in [
        (raw("weather", json!({})), "reports[1].kind", "weather is not a kind of report"),
        (raw("usage", json!({ "bytes": "many" })), "reports[1].report", "invalid type"),
        (
            raw("usage", json!({ "version": 1, "state": "serving", "message": null })),
            "reports[1].report",
            "missing field",
        ),
        (of_nobody, "reports[1].project", "must be an id that starts with prj_"),
    ] {
        let batch = Batch { batch: 1, reports: vec![usage(project, 1), refused] };
        let error = convergence.report(node, batch).await.unwrap_err();
        assert_eq!(error.code(), &kernel::Code::BAD_REQUEST);
        let field = &error.details().unwrap()["fields"][0];
        assert_eq!(field["path"], path);
        assert!(field["message"].as_str().unwrap().contains(message), "{field}");
    }
    // The number is still free: the node sends the rest under it.
    let rest = Batch { batch: 1, reports: vec![usage(project, 3)] };
    meter.0.lock().unwrap().clear();
    assert_eq!(convergence.report(node, rest).await.unwrap(), Receipt { batch: 1 });
    assert_eq!(*meter.0.lock().unwrap(), [(project, 3)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_fails_leaves_the_batch_to_be_sent_again() {
    let kit = Kit::start().await;
    let (node, project, _, convergence) = metered(&kit).await;
    let failed = convergence.report(node, Batch { batch: 1, reports: vec![usage(project, 0)] }).await;
    assert!(matches!(failed, Err(ConvergenceError::Store(_))), "{failed:?}");
    assert_eq!(kit.desired(node, 0).await.batch, 0);
    let again = Batch { batch: 1, reports: vec![usage(project, 5)] };
    assert_eq!(convergence.report(node, again).await.unwrap(), Receipt { batch: 1 });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_has_one_receiver() {
    let kit = Kit::start().await;
    let mut builder = embedded(kit.store.clone());
    builder.receive::<DeploymentReport>(Arc::<Seen>::default()).unwrap();
    let again = builder.receive::<DeploymentReport>(Arc::<Seen>::default());
    assert_eq!(again.unwrap_err(), AlreadyRegistered::Kind("deployment"));
}

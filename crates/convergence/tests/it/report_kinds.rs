//! Kinds of reports. Each report goes to the receiver of its kind, in the order of the batch.

use std::sync::{Arc, Mutex};

use convergence::{AlreadyRegistered, Convergence, ConvergenceError, ReportReceiver};
use kernel::{ApiError as _, NodeId, ProjectId};
use protocol::{Batch, DeploymentReport, DeploymentState, Receipt, Report, ReportKind};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::Connection;

use crate::kit::{Kit, RecordedReports, embedded_builder, site};

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
            return Err(store::Error::inconsistent("the report requests a failure"));
        }
        self.0.lock().unwrap().push((project, report.bytes));
        Ok(())
    }
}

async fn start_with_meter(kit: &Kit) -> (NodeId, ProjectId, Arc<Meter>, Convergence) {
    let (meter, mut builder) = (Arc::<Meter>::default(), embedded_builder(kit.store.clone()));
    builder.register_receiver::<Usage>(meter.clone()).unwrap();
    builder.register_receiver::<DeploymentReport>(kit.deployment_reports.clone()).unwrap();
    let (node, project) = (kit.add_node("edge").await.node.id, kit.new_project());
    kit.set_site(project, Some(site(1))).await;
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
async fn report_goes_to_receiver_of_its_kind() {
    let kit = Kit::start().await;
    let (node, project, meter, convergence) = start_with_meter(&kit).await;
    let unplaced = kit.new_project();
    let reports = vec![usage(project, 1), serving(project), usage(unplaced, 7), usage(project, 2)];
    let batch = Batch { batch: 1, reports };
    for _ in 0..2 {
        assert_eq!(convergence.report(node, batch.clone()).await.unwrap(), Receipt { batch: 1 });
    }
    assert_eq!(*meter.0.lock().unwrap(), [(project, 1), (project, 2)]);
    assert_eq!(*kit.deployment_reports.0.lock().unwrap(), [(project, 1, DeploymentState::Serving, None)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_report_rejects_whole_batch() {
    let kit = Kit::start().await;
    let (node, project, meter, convergence) = start_with_meter(&kit).await;
    let raw = |kind: &str, report| Report { project: project.to_string(), kind: kind.to_owned(), report };
    let invalid_project = Report { project: "prj_1".to_owned(), ..usage(project, 1) };
    for (invalid, path, message) in [
        (raw("weather", json!({})), "reports[1].kind", "weather is not a known kind of report"),
        (raw("usage", json!({ "bytes": "many" })), "reports[1].report", "invalid type"),
        (
            raw("usage", json!({ "version": 1, "state": "serving", "message": null })),
            "reports[1].report",
            "missing field",
        ),
        (invalid_project, "reports[1].project", "must be an id that starts with prj_"),
    ] {
        let batch = Batch { batch: 1, reports: vec![usage(project, 1), invalid] };
        let error = convergence.report(node, batch).await.unwrap_err();
        assert_eq!(error.code(), &kernel::Code::BAD_REQUEST);
        let field = &error.details().unwrap()["fields"][0];
        assert_eq!(field["path"], path);
        assert!(field["message"].as_str().unwrap().contains(message), "{field}");
    }
    // The number of the batch was not recorded, so the node can send the other reports under it.
    let rest = Batch { batch: 1, reports: vec![usage(project, 3)] };
    meter.0.lock().unwrap().clear();
    assert_eq!(convergence.report(node, rest).await.unwrap(), Receipt { batch: 1 });
    assert_eq!(*meter.0.lock().unwrap(), [(project, 3)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_batch_can_be_sent_again() {
    let kit = Kit::start().await;
    let (node, project, _, convergence) = start_with_meter(&kit).await;
    let failed = convergence.report(node, Batch { batch: 1, reports: vec![usage(project, 0)] }).await;
    assert!(matches!(failed, Err(ConvergenceError::Store(_))), "{failed:?}");
    assert_eq!(kit.desired(node, 0).await.batch, 0);
    let again = Batch { batch: 1, reports: vec![usage(project, 5)] };
    assert_eq!(convergence.report(node, again).await.unwrap(), Receipt { batch: 1 });
}

#[tokio::test(flavor = "multi_thread")]
async fn report_kind_has_one_receiver() {
    let kit = Kit::start().await;
    let mut builder = embedded_builder(kit.store.clone());
    builder.register_receiver::<DeploymentReport>(Arc::<RecordedReports>::default()).unwrap();
    let again = builder.register_receiver::<DeploymentReport>(Arc::<RecordedReports>::default());
    assert_eq!(again.unwrap_err(), AlreadyRegistered::Kind("deployment"));
}

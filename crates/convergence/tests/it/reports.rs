//! Reports are accepted once, in order, and only about the projects of the reporting node.

use std::time::Duration;

use convergence::{Convergence, ConvergenceError};
use kernel::{ApiError as _, ProjectId};
use protocol::{Batch, DeploymentReport, DeploymentState, Receipt, Report, Site};

use crate::kit::{Kit, deploy_event, digest, operator, platform, site, sites};

fn report(project: ProjectId, version: i32, state: DeploymentState, message: Option<&str>) -> Report {
    let report = DeploymentReport { version, state, message: message.map(str::to_owned) };
    Report::new(project.to_string(), &report).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_is_accepted_once() {
    let kit = Kit::start().await;
    let (node, project) = (kit.add_node("edge").await.node.id, kit.new_project());
    kit.set_site(project, Some(site(1))).await;
    let batch = Batch {
        batch: 1,
        reports: vec![
            report(project, 1, DeploymentState::Failed, Some("no such module")),
            report(project, 1, DeploymentState::Serving, None),
        ],
    };
    for _ in 0..2 {
        assert_eq!(kit.convergence.report(node, batch.clone()).await.unwrap(), Receipt { batch: 1 });
    }
    let recorded = kit.deployment_reports.0.lock().unwrap().clone();
    let expected = [
        (project, 1, DeploymentState::Failed, Some("no such module".to_owned())),
        (project, 1, DeploymentState::Serving, None),
    ];
    assert_eq!(recorded, expected);
    // A batch with a lower number is ignored, and the response contains the last accepted number.
    let later = Batch { batch: 7, reports: vec![] };
    assert_eq!(kit.convergence.report(node, later).await.unwrap(), Receipt { batch: 7 });
    assert_eq!(kit.convergence.report(node, batch).await.unwrap(), Receipt { batch: 7 });
    assert_eq!(kit.deployment_reports.0.lock().unwrap().len(), 2);
    assert_eq!(kit.desired(node, 0).await.batch, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_copies_of_batch_are_accepted_once() {
    let kit = Kit::start().await;
    let (node, project) = (kit.add_node("edge").await.node.id, kit.new_project());
    kit.set_site(project, Some(site(1))).await;
    let batch = Batch { batch: 1, reports: vec![report(project, 1, DeploymentState::Serving, None)] };
    let copies = (0..20).map(|_| kit.convergence.report(node, batch.clone()));
    let receipts = futures_util::future::join_all(copies).await;
    assert!(receipts.into_iter().all(|receipt| receipt.unwrap() == Receipt { batch: 1 }));
    assert_eq!(kit.deployment_reports.0.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_about_projects_of_other_nodes_are_ignored() {
    let kit = Kit::start().await;
    let first = kit.add_node("first").await.node.id;
    let project = kit.new_project();
    kit.set_site(project, Some(site(1))).await;
    let second = kit.add_node("second").await.node.id;
    let batch = Batch {
        batch: 1,
        reports: vec![
            report(project, 1, DeploymentState::Failed, None),
            report(kit.new_project(), 1, DeploymentState::Failed, None),
        ],
    };
    assert_eq!(kit.convergence.report(second, batch.clone()).await.unwrap(), Receipt { batch: 1 });
    assert!(kit.deployment_reports.0.lock().unwrap().is_empty());
    assert!(kit.convergence.is_home(first, project).await.unwrap());
    assert!(!kit.convergence.is_home(second, project).await.unwrap());
    let unknown = kit.convergence.report(kit.store.clock_rng().id(), batch).await;
    assert!(matches!(unknown, Err(ConvergenceError::UnknownNode)));
}

#[tokio::test(flavor = "multi_thread")]
async fn link_off_rejects_node_requests_and_stores_desired_state() {
    let kit = Kit::start().await;
    let (node, project) = (kit.add_node("edge").await.node.id, kit.new_project());
    let mut off = Convergence::builder(kit.store.clone(), None, platform());
    let (part, off) = (off.register_part::<Site>().unwrap(), off.build());
    let operator = operator();
    let deploy = kit.store.transaction(&operator, async |tx| {
        part.write(tx, project, &site(1)).await?;
        Ok::<_, ConvergenceError>(store::Outcome::Changed((), deploy_event(project)))
    });
    deploy.await.unwrap();
    let error = off.desired(node, 0, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.code(), &ConvergenceError::NO_CORE);
    assert!(matches!(off.authorize_bundle(node, digest(1)).await, Err(ConvergenceError::NoCore)));
    let report = Batch { batch: 1, reports: vec![] };
    assert!(matches!(off.report(node, report).await, Err(ConvergenceError::NoCore)));
    assert_eq!(sites(&kit.desired(node, 0).await)[0].part, Some(site(1)));
}

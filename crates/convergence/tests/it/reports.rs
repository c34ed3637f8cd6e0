//! What nodes report is taken in once, in order, and of their own projects alone.

use std::time::Duration;

use convergence::{Convergence, ConvergenceError};
use kernel::{Failure as _, ProjectId};
use protocol::{Batch, DeploymentReport, DeploymentState, Receipt, Report, Site};

use crate::kit::{Kit, deployed, digest, operator, platform, site, sites};

fn report(project: ProjectId, version: i32, state: DeploymentState, message: Option<&str>) -> Report {
    let report = DeploymentReport { version, state, message: message.map(str::to_owned) };
    Report::new(project.to_string(), &report).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_taken_in_once_and_told_to_the_node() {
    let kit = Kit::start().await;
    let (node, project) = (kit.node("edge").await.node.id, kit.project());
    kit.converge(project, Some(site(1))).await;
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
    let seen = kit.deployments.0.lock().unwrap().clone();
    let expected = [
        (project, 1, DeploymentState::Failed, Some("no such module".to_owned())),
        (project, 1, DeploymentState::Serving, None),
    ];
    assert_eq!(seen, expected);
    // One that was overtaken changes nothing, and the answer tells where the node is.
    let later = Batch { batch: 7, reports: vec![] };
    assert_eq!(kit.convergence.report(node, later).await.unwrap(), Receipt { batch: 7 });
    assert_eq!(kit.convergence.report(node, batch).await.unwrap(), Receipt { batch: 7 });
    assert_eq!(kit.deployments.0.lock().unwrap().len(), 2);
    assert_eq!(kit.desired(node, 0).await.batch, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_copies_of_a_batch_one_is_taken_in() {
    let kit = Kit::start().await;
    let (node, project) = (kit.node("edge").await.node.id, kit.project());
    kit.converge(project, Some(site(1))).await;
    let batch = Batch { batch: 1, reports: vec![report(project, 1, DeploymentState::Serving, None)] };
    let copies = (0..20).map(|_| kit.convergence.report(node, batch.clone()));
    let answers = futures_util::future::join_all(copies).await;
    assert!(answers.into_iter().all(|answer| answer.unwrap() == Receipt { batch: 1 }));
    assert_eq!(kit.deployments.0.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_not_heard_about_the_projects_of_another() {
    let kit = Kit::start().await;
    let first = kit.node("first").await.node.id;
    let project = kit.project();
    kit.converge(project, Some(site(1))).await;
    let second = kit.node("second").await.node.id;
    let batch = Batch {
        batch: 1,
        reports: vec![
            report(project, 1, DeploymentState::Failed, None),
            report(kit.project(), 1, DeploymentState::Failed, None),
        ],
    };
    assert_eq!(kit.convergence.report(second, batch.clone()).await.unwrap(), Receipt { batch: 1 });
    assert!(kit.deployments.0.lock().unwrap().is_empty());
    assert!(kit.convergence.is_home(first, project).await.unwrap());
    assert!(!kit.convergence.is_home(second, project).await.unwrap());
    let gone = kit.convergence.report(kit.store.world().id(), batch).await;
    assert!(matches!(gone, Err(ConvergenceError::UnknownNode)));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_link_nothing_reaches_nodes_and_what_is_desired_is_kept() {
    let kit = Kit::start().await;
    let (node, project) = (kit.node("edge").await.node.id, kit.project());
    let mut off = Convergence::builder(kit.store.clone(), None, platform());
    let (part, off) = (off.own::<Site>().unwrap(), off.build());
    let operator = operator();
    let deploy = kit.store.transaction(&operator, async |tx| {
        part.write(tx, project, &site(1)).await?;
        Ok::<_, ConvergenceError>(store::Outcome::Changed((), deployed(project)))
    });
    deploy.await.unwrap();
    let refused = off.desired(node, 0, Duration::ZERO).await.unwrap_err();
    assert_eq!(refused.code(), &ConvergenceError::NO_CORE);
    assert!(matches!(off.bundle_for(node, digest(1)).await, Err(ConvergenceError::NoCore)));
    let report = Batch { batch: 1, reports: vec![] };
    assert!(matches!(off.report(node, report).await, Err(ConvergenceError::NoCore)));
    assert_eq!(sites(&kit.desired(node, 0).await)[0].part, Some(site(1)));
}

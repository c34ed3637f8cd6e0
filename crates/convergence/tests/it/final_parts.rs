//! Parts that outlive their project.

use convergence::{ConvergenceError, FinalPartWriter};
use kernel::{NodeId, ProjectId};
use protocol::{DatabaseServer, DeletedBackups, DeletedStorage, DesiredPart, NodeInfo, SslMode};
use store::Connection;

use crate::kit::{Kit, embedded_builder, operator, parts, site, sites};

/// The service with a context that owns a final part.
struct FinalPart {
    kit: Kit,
    writer: FinalPartWriter<DeletedStorage>,
}

impl FinalPart {
    async fn start() -> Self {
        let kit = Kit::start().await;
        let writer = embedded_builder(kit.store.clone()).register_final_part().unwrap();
        Self { kit, writer }
    }

    /// Returns a project that was deleted.
    async fn deleted_project(&self) -> ProjectId {
        let project = self.kit.new_project();
        self.kit.set_site(project, Some(site(1))).await;
        let remover = embedded_builder(self.kit.store.clone()).project_remover();
        let delete = async |tx: &mut Connection| remover.remove(tx, project).await;
        self.kit.store.transaction_unaudited(delete).await.unwrap();
        project
    }

    /// Returns a project that was deleted and then purged, with a final part.
    async fn purged_project(&self) -> ProjectId {
        let project = self.deleted_project().await;
        let remover = embedded_builder(self.kit.store.clone()).project_remover();
        let purge = async |tx: &mut Connection| {
            self.writer.write(tx, project, &DeletedStorage { prefix: "sto_1".to_owned() }).await?;
            remover.purge(tx, &[project]).await
        };
        self.kit.store.transaction_unaudited(purge).await.unwrap();
        project
    }

    /// Ends the final part `P` of a project.
    async fn end<P: DesiredPart>(&self, writer: &FinalPartWriter<P>, project: ProjectId) {
        let end = async |tx: &mut Connection| writer.end(tx, project).await;
        self.kit.store.transaction_unaudited(end).await.unwrap();
    }

    /// Adds a node with a Postgres.
    async fn node_with_database(&self, name: &str) -> NodeId {
        let node = self.kit.add_node(name).await.node.id;
        let (host, sslmode) = ("db1.example".to_owned(), SslMode::VerifyFull);
        let database = Some(DatabaseServer { host, port: 5432, sslmode, backup_interval_seconds: 3600 });
        self.kit.convergence.announce(node, NodeInfo { database }).await.unwrap();
        node
    }

    /// Returns the projects whose final part a node receives.
    async fn desired(&self, node: NodeId) -> Vec<ProjectId> {
        let parts = parts::<DeletedStorage>(&self.kit.desired(node, 0).await);
        parts.into_iter().filter(|it| it.part.is_some()).map(|it| it.project).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn final_part_stays_after_the_purge_until_its_end() {
    let fixture = FinalPart::start().await;
    let node = fixture.kit.add_node("edge").await.node.id;
    let project = fixture.purged_project().await;
    let desired = fixture.kit.desired(node, 0).await;
    assert!(sites(&desired).iter().all(|site| site.part.is_none()), "{desired:?}");
    assert_eq!(fixture.desired(node).await, [project]);
    // Writes of other parts of the deleted project are still rejected.
    let refused = fixture.kit.try_set_site(project, Some(site(2))).await;
    assert!(matches!(refused, Err(ConvergenceError::ProjectDeleted)), "{refused:?}");
    fixture.end(&fixture.writer, project).await;
    assert_eq!(fixture.kit.desired(node, 0).await.parts, []);
    assert_eq!(fixture.kit.db_number("SELECT count(*) FROM convergence.placements").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn final_part_moves_to_another_node_and_waits_for_one() {
    let fixture = FinalPart::start().await;
    let first = fixture.kit.add_node("first").await.node;
    let project = fixture.purged_project().await;
    fixture.kit.nodes.revoke(&operator(), &first.name).await.unwrap();
    // The next node gets the pending projects, including this one.
    let second = fixture.kit.add_node("second").await.node;
    assert_eq!(fixture.desired(second.id).await, [project]);
    let third = fixture.kit.add_node("third").await.node;
    fixture.kit.nodes.revoke(&operator(), &second.name).await.unwrap();
    assert_eq!(fixture.desired(third.id).await, [project]);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_of_backups_needs_a_postgres_and_waits_for_another_final_part() {
    let fixture = FinalPart::start().await;
    let bare = fixture.kit.add_node("bare").await.node.id;
    let (project, other) = (fixture.purged_project().await, fixture.deleted_project().await);
    let first = fixture.node_with_database("first").await;
    let backups: FinalPartWriter<DeletedBackups> =
        embedded_builder(fixture.kit.store.clone()).register_final_part().unwrap();
    for project in [project, other] {
        let write = async |tx: &mut Connection| backups.write(tx, project, &DeletedBackups {}).await;
        fixture.kit.store.transaction_unaudited(write).await.unwrap();
    }
    let deletions = async |node: NodeId| {
        let parts = parts::<DeletedBackups>(&fixture.kit.desired(node, 0).await);
        parts.into_iter().map(|it| it.project).collect::<Vec<_>>()
    };
    assert_eq!((fixture.desired(bare).await, deletions(first).await), (vec![project], vec![other]));
    fixture.end(&backups, other).await;
    for _ in 0..2 {
        fixture.end(&fixture.writer, project).await;
        assert_eq!((deletions(bare).await, deletions(first).await), (Vec::new(), vec![project]));
    }
    fixture.kit.nodes.revoke(&operator(), &"first".parse().unwrap()).await.unwrap();
    assert_eq!(fixture.kit.desired(bare, 0).await.parts, []);
    let second = fixture.node_with_database("second").await;
    // Another final part also stays after the end of this one.
    let write = async |tx: &mut Connection| {
        fixture.writer.write(tx, project, &DeletedStorage { prefix: "sto_1".to_owned() }).await
    };
    fixture.kit.store.transaction_unaudited(write).await.unwrap();
    fixture.end(&backups, project).await;
    assert_eq!((fixture.desired(second).await, deletions(second).await), (vec![project], Vec::new()));
    fixture.end(&fixture.writer, project).await;
    assert_eq!(fixture.kit.db_number("SELECT count(*) FROM convergence.placements").await, 0);
}

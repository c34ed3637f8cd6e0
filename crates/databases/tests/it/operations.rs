//! The state machine of operations.

use databases::{GenerationKind, Notice, Operation, OperationKind, Phase, Progress, RestoreRequest, Target};
use kernel::OperationId;
use kernel::audit::Event;
use serde_json::json;
use testkit::Audit;

use crate::kit::{Kit, code, shop};
use crate::ports::Update;

const PHASES: [Phase; 4] = [Phase::Draining, Phase::Sealing, Phase::Committing, Phase::Reactivating];

impl Kit {
    /// Checks the phase of an operation and the state of its placement.
    async fn expect(&self, at: Target, operation: OperationId, phase: Phase, state: &str, epoch: i64) {
        assert_eq!(self.operation(at, operation).await.phase, phase);
        assert_eq!(self.placement(at).await, (state.to_owned(), epoch), "{phase}");
    }

    async fn kinds(&self, at: Target) -> Vec<(i64, GenerationKind)> {
        self.generations(at).await.iter().map(|generation| (generation.epoch, generation.kind)).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restore_passes_all_phases_and_raises_the_epoch() {
    let kit = Kit::start().await;
    let (at, id) = kit.database("shop").await;
    let chosen = kit.scheduled(at).await;
    kit.scheduled(at).await;
    kit.node.take_updates();
    let operation = kit.restore(at, &chosen).await.unwrap();
    let data = json!({ "operation": operation, "epoch": 1, "seq": 1 });
    let event = Event::in_org("database.restore", at.org, at.project, data);
    assert_eq!(kit.audited().await, [Audit::of(&kit.actor, event)]);
    for phase in PHASES {
        kit.expect(at, operation, phase, phase.as_str(), if phase == Phase::Reactivating { 2 } else { 1 }).await;
        let part = kit.part(at).await.unwrap();
        let running = part.operation.unwrap();
        assert_eq!((running.id, running.kind, running.phase), (operation, OperationKind::RestoreGeneration, phase));
        assert_eq!(running.generation.unwrap().key, chosen.offsite_key);
        assert_eq!(kit.node.take_updates().last(), Some(&Update::Published(at.project)), "{phase}");
        kit.report_other_phases(at, operation, phase).await;
        kit.advance(1);
        kit.complete(at, operation, phase).await;
    }
    kit.expect(at, operation, Phase::Done, "active", 2).await;
    let ended = kit.operation(at, operation).await;
    assert_eq!((ended.terminal_code, ended.updated_at), (None, kit.now()));
    assert_eq!(kit.notices.take(), [Notice::RestoreCompleted { project: shop(at), epoch: 1, seq: 1 }]);
    let part = kit.part(at).await.unwrap();
    assert_eq!((part.id, part.epoch, part.operation), (id, 2, None));
    // The node would create a lost database from the restored generation until there is a generation of the new epoch.
    assert_eq!(part.source.unwrap().key, chosen.offsite_key);
    let next = kit.scheduled(at).await;
    assert_eq!((next.epoch, next.seq), (2, 4));
    assert_eq!(kit.part(at).await.unwrap().source.unwrap().key, next.offsite_key);
    let pre_restores = kit.kinds(at).await.into_iter().filter(|kind| *kind == (1, GenerationKind::PreRestore));
    assert_eq!(pre_restores.count(), 1);
}

impl Kit {
    /// Reports phases other than the current one, which changes nothing.
    async fn report_other_phases(&self, at: Target, operation: OperationId, present: Phase) {
        let state = async || (self.operation(at, operation).await, self.part(at).await, self.generations(at).await);
        let before = state().await;
        for phase in PHASES.into_iter().filter(|phase| *phase != present) {
            self.report(at, Progress::Completed { operation, phase, generation: None }).await;
        }
        let other = self.store.clock_rng().id();
        self.report(at, Progress::Completed { operation: other, phase: present, generation: None }).await;
        self.report(at, Progress::Failed { operation: other, reason: "another".to_owned() }).await;
        assert_eq!(state().await, before);
        assert!(self.node.take_updates().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_removes_the_database_when_it_commits() {
    let kit = Kit::start().await;
    let (at, id) = kit.database("shop").await;
    kit.token(at, None).await.unwrap();
    kit.audited().await;
    for confirm in ["", "Shop", "shop "] {
        let request = serde_json::from_value(json!({ "confirm": confirm })).unwrap();
        assert_eq!(code(kit.databases.delete(&kit.actor, at, "shop", request).await), "confirm_mismatch");
    }
    let operation = kit.delete(at).await.unwrap();
    let event = Event::in_org("database.delete", at.org, at.project, json!({ "operation": operation }));
    assert_eq!(kit.audited().await, [Audit::of(&kit.actor, event)]);
    kit.complete(at, operation, Phase::Draining).await;
    assert!(kit.databases.exists(at.project).await.unwrap());
    kit.complete(at, operation, Phase::Sealing).await;
    kit.expect(at, operation, Phase::Committing, "committing", 1).await;
    assert!(!kit.databases.exists(at.project).await.unwrap());
    let part = kit.part(at).await.unwrap();
    assert_eq!((part.id, part.verifier, part.tokens.len()), (id, None, 0));
    assert_eq!(part.operation.unwrap().phase, Phase::Committing);
    // The node has not deleted the old database yet.
    assert_eq!(code(kit.databases.enable(&kit.actor, at).await), "operation_in_progress");
    kit.node.take_updates();
    kit.complete(at, operation, Phase::Committing).await;
    kit.expect(at, operation, Phase::Done, "active", 1).await;
    assert_eq!(kit.operation(at, operation).await.terminal_code, None);
    assert_eq!(kit.node.take_updates(), [Update::Withdrawn(at.project)]);
    assert_eq!(kit.part(at).await, None);
    assert_eq!(kit.notices.take(), [Notice::DatabaseDeleted { project: shop(at) }]);
    assert_eq!(kit.kinds(at).await, [(1, GenerationKind::Final)]);
    // The final generation can be restored into a new database.
    let last = kit.generations(at).await.remove(0);
    assert_eq!(code(kit.restore(at, &last).await), "database_required");
    kit.enable(at).await;
    let new = kit.part(at).await.unwrap();
    assert_ne!(new.id, id);
    assert_eq!(new.source, None);
    let restored = kit.restore(at, &last).await.unwrap();
    for phase in PHASES {
        kit.complete(at, restored, phase).await;
    }
    assert_eq!(kit.part(at).await.unwrap().source.unwrap().key, last.offsite_key);
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_of_operations() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    assert_eq!(code(kit.delete(at).await), "not_found");
    let unknown = RestoreRequest { epoch: 1, seq: 1 };
    assert_eq!(code(kit.databases.restore(&kit.actor, at, unknown).await), "not_found");
    kit.enable(at).await;
    assert_eq!(code(kit.databases.restore(&kit.actor, at, unknown).await), "not_found");
    let chosen = kit.scheduled(at).await;
    for (epoch, seq) in [(1, 2), (2, 1)] {
        let unknown = RestoreRequest { epoch, seq };
        assert_eq!(code(kit.databases.restore(&kit.actor, at, unknown).await), "not_found");
    }
    kit.db_place(at, "state = 'suspended'").await;
    assert_eq!(code(kit.restore(at, &chosen).await), "suspended");
    assert_eq!(code(kit.delete(at).await), "suspended");
    assert!(kit.part(at).await.unwrap().suspended);
    kit.db_place(at, "node_id = NULL, state = 'pending'").await;
    assert_eq!(code(kit.restore(at, &chosen).await), "no_home_node");
    assert_eq!(code(kit.delete(at).await), "no_home_node");
    kit.db_place(at, &format!("node_id = '{}', state = 'active'", kit.home.as_uuid())).await;
    let grant = "INSERT INTO resources.grants (project_id, resource, granted_at) VALUES";
    kit.db_execute(&format!("{grant} ('{}', 'auth', now())", at.project.as_uuid())).await;
    assert_eq!(code(kit.delete(at).await), "auth_enabled");
    let operation = kit.restore(at, &chosen).await.unwrap();
    assert_eq!(code(kit.restore(at, &chosen).await), "operation_in_progress");
    kit.db_execute("DELETE FROM resources.grants").await;
    assert_eq!(code(kit.delete(at).await), "operation_in_progress");
    assert_eq!(code(kit.databases.export(&kit.actor, at).await), "operation_in_progress");
    // An operation belongs to its project.
    let (other, _) = kit.database("other").await;
    assert_eq!(code(kit.databases.operation(other.project, operation).await), "not_found");
    assert_eq!(code(kit.databases.abort(&kit.actor, other, operation).await), "not_found");
    let unknown: OperationId = kit.store.clock_rng().id();
    assert_eq!(code(kit.databases.abort(&kit.actor, at, unknown).await), "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn abort_ends_an_operation_before_it_commits() {
    let kit = Kit::start().await;
    let (at, _) = kit.database("shop").await;
    let chosen = kit.scheduled(at).await;
    for completed in 0..4 {
        let operation = kit.restore(at, &chosen).await.unwrap();
        for phase in &PHASES[..completed] {
            kit.complete(at, operation, *phase).await;
        }
        kit.audited().await;
        let aborted = kit.databases.abort(&kit.actor, at, operation).await;
        if completed < 2 {
            let Operation { phase, terminal_code, .. } = aborted.unwrap();
            assert_eq!((phase, terminal_code.as_deref()), (Phase::Done, Some("aborted")));
            kit.expect(at, operation, Phase::Done, "active", 1).await;
            let event = Event::in_org("database.abort", at.org, at.project, json!({ "operation": operation }));
            assert_eq!(kit.audited().await, [Audit::of(&kit.actor, event)]);
            assert_eq!(kit.part(at).await.unwrap().operation, None);
            assert_eq!(code(kit.databases.abort(&kit.actor, at, operation).await), "not_abortable");
            // A late report changes nothing.
            let before = kit.part(at).await;
            kit.report(at, Progress::Completed { operation, phase: PHASES[completed], generation: None }).await;
            kit.report(at, Progress::Failed { operation, reason: "late".to_owned() }).await;
            assert_eq!(kit.part(at).await, before);
            assert!(kit.notices.take().is_empty());
        } else {
            assert_eq!(code(aborted), "not_abortable");
            assert!(kit.audited().await.is_empty());
            for phase in &PHASES[completed..] {
                kit.complete(at, operation, *phase).await;
            }
            kit.expect(at, operation, Phase::Done, "active", i64::try_from(completed).unwrap()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_ends_an_operation_before_it_commits() {
    let kit = Kit::start().await;
    let (at, _) = kit.database("shop").await;
    let chosen = kit.scheduled(at).await;
    let failed = |operation| Progress::Failed { operation, reason: "the object is missing".to_owned() };
    let operation = kit.restore(at, &chosen).await.unwrap();
    kit.complete(at, operation, Phase::Draining).await;
    kit.report(at, failed(operation)).await;
    kit.report(at, failed(operation)).await;
    kit.expect(at, operation, Phase::Done, "active", 1).await;
    assert_eq!(kit.operation(at, operation).await.terminal_code.as_deref(), Some("restore_failed"));
    let (project, reason) = (shop(at), "the object is missing".to_owned());
    assert_eq!(
        kit.notices.take(),
        [Notice::RestoreFailed { project: project.clone(), epoch: 1, seq: 1, reason: reason.clone() }]
    );
    let operation = kit.delete(at).await.unwrap();
    kit.report(at, failed(operation)).await;
    assert_eq!(kit.operation(at, operation).await.terminal_code.as_deref(), Some("delete_failed"));
    let reason = format!("{reason}. The database was not deleted and is online again");
    assert_eq!(kit.notices.take(), [Notice::BackupFailed { project, reason }]);
    assert!(kit.databases.exists(at.project).await.unwrap());
    // In the irreversible phase, a failure does not end the operation.
    let operation = kit.restore(at, &chosen).await.unwrap();
    kit.complete(at, operation, Phase::Draining).await;
    kit.complete(at, operation, Phase::Sealing).await;
    kit.report(at, failed(operation)).await;
    kit.expect(at, operation, Phase::Committing, "committing", 1).await;
    assert!(kit.notices.take().is_empty());
    // If the node lost the prepared database, it creates it again from the chosen generation.
    assert_eq!(kit.part(at).await.unwrap().source.unwrap().key, chosen.offsite_key);
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_about_a_deleted_project_change_nothing_but_keep_its_generations() {
    let kit = Kit::start().await;
    let (at, id) = kit.database("shop").await;
    let operation = kit.delete(at).await.unwrap();
    let last = kit.generation(at, GenerationKind::Final).await;
    kit.db_delete(at).await;
    kit.node.take_updates();
    let progress = Progress::Completed { operation, phase: Phase::Draining, generation: None };
    kit.observe(at, crate::kit::observation(id, 9), Some(progress)).await;
    assert_eq!(kit.operation(at, operation).await.phase, Phase::Draining);
    kit.receive_generation(at, last).await;
    assert_eq!(kit.kinds(at).await, [(1, GenerationKind::Final)]);
    assert!(kit.node.take_updates().is_empty() && kit.notices.take().is_empty());
}

/// The node has not created the database yet, so there is nothing to back up: the database cannot have acknowledged a
/// write.
#[tokio::test(flavor = "multi_thread")]
async fn restore_before_the_database_exists_has_no_generation_before_it() {
    let kit = Kit::start().await;
    let (at, _) = kit.database("shop").await;
    let chosen = kit.scheduled(at).await;
    let deletion = kit.delete(at).await.unwrap();
    for phase in [Phase::Draining, Phase::Sealing, Phase::Committing] {
        kit.complete(at, deletion, phase).await;
    }
    // The new database starts its restore before the first report of the node.
    kit.enable(at).await;
    let restore = kit.restore(at, &chosen).await.unwrap();
    for phase in PHASES {
        kit.report(at, Progress::Completed { operation: restore, phase, generation: None }).await;
    }
    kit.expect(at, restore, Phase::Done, "active", 2).await;
    assert_eq!(kit.operation(at, restore).await.terminal_code, None);
    assert_eq!(kit.kinds(at).await, [(1, GenerationKind::Final), (1, GenerationKind::Scheduled)]);
    assert_eq!(kit.part(at).await.unwrap().source.unwrap().key, chosen.offsite_key);
}

//! The role of the control plane in operations.

use protocol::{
    DatabaseOperation, DatabaseOperationKind, DatabaseReport, GenerationRef, OperationPhase, OperationReport,
};

use super::kit::{Kit, eventually};

impl Kit {
    /// Executes the current operation until this phase is complete, as the control plane does.
    pub async fn operate_until(&mut self, project: &str, last: OperationPhase) {
        loop {
            let operation = self.desired(project).operation.clone().unwrap();
            let completed = self.completed(project, &operation).await;
            assert_eq!(completed, operation.phase);
            if completed == last {
                return;
            }
            self.advance(project);
        }
    }

    /// Waits for the report that the current phase is complete.
    pub async fn completed(&mut self, project: &str, operation: &DatabaseOperation) -> OperationPhase {
        let is_done = |report: &DatabaseReport| match &report.operation {
            Some(OperationReport::Completed(done)) => done.id == operation.id && done.completed == operation.phase,
            _ => false,
        };
        let what = format!("{:?}", operation.phase);
        let Some(OperationReport::Completed(done)) = self.reported(project, &what, is_done).await.operation else {
            unreachable!("checked")
        };
        done.completed
    }

    /// Publishes the next phase, or the end of the operation.
    pub fn advance(&mut self, project: &str) {
        self.change(project, |database| {
            let operation = database.operation.as_mut().unwrap();
            let is_restore = operation.kind == DatabaseOperationKind::RestoreGeneration;
            operation.phase = match operation.phase {
                OperationPhase::Draining => OperationPhase::Sealing,
                OperationPhase::Sealing => OperationPhase::Committing,
                OperationPhase::Committing if is_restore => OperationPhase::Reactivating,
                _ => {
                    database.operation = None;
                    return;
                }
            };
            match operation.phase {
                OperationPhase::Committing if !is_restore => {
                    database.verifier = None;
                    database.tokens.clear();
                }
                OperationPhase::Reactivating => {
                    database.source = operation.generation.clone();
                    database.epoch += 1;
                }
                _ => {}
            }
        });
    }

    /// Begins an operation.
    pub fn begin(&mut self, project: &str, kind: DatabaseOperationKind, generation: Option<GenerationRef>) -> String {
        let id = self.id("opn");
        let operation = DatabaseOperation { id: id.clone(), kind, phase: OperationPhase::Draining, generation };
        self.change(project, |database| database.operation = Some(operation));
        id
    }

    /// Restores a generation, from the first phase to the last.
    pub async fn restore(&mut self, project: &str, generation: &GenerationRef) {
        self.begin(project, DatabaseOperationKind::RestoreGeneration, Some(generation.clone()));
        self.operate_until(project, OperationPhase::Reactivating).await;
        self.advance(project);
        self.applied(project).await;
    }

    /// Returns the generations of a kind, in the order in which the node first reported them.
    pub fn generations(&self, project: &str, kind: &str) -> Vec<GenerationRef> {
        let mut found: Vec<GenerationRef> = Vec::new();
        for report in self.core.reports_of(project, "generation") {
            let text = |name: &str| report[name].as_str().unwrap().to_owned();
            if report["kind"] == kind && found.iter().all(|known| known.key != text("key")) {
                let size_bytes = report["sizeBytes"].as_u64().unwrap();
                found.push(GenerationRef { key: text("key"), size_bytes, sha256: text("sha256") });
            }
        }
        found
    }

    /// Stores the current content as a generation, by starting a restore and aborting it.
    pub async fn generation(&mut self, project: &str) -> GenerationRef {
        let before = self.generations(project, "pre_restore").len();
        let missing = GenerationRef { key: "missing".to_owned(), size_bytes: 1, sha256: "0".repeat(64) };
        self.begin(project, DatabaseOperationKind::RestoreGeneration, Some(missing));
        let operation = self.desired(project).operation.clone().unwrap();
        self.completed(project, &operation).await;
        self.advance(project);
        eventually("a generation", async || self.generations(project, "pre_restore").len() > before).await;
        self.change(project, |database| database.operation = None);
        self.applied(project).await;
        self.generations(project, "pre_restore").pop().unwrap()
    }
}

//! A server, Ada's project `site`, and a node with a Postgres.

use convergence::Placements;
use kernel::audit::Actor;
use kernel::{ClockRng, ProjectId, Secret, Time};
use reqwest::Method;
use serde_json::{Map, Value, json};
use server::Config;
use store::Store;

use super::{DATABASE, DELETE, GENERATIONS, PROJECT, RESTORE};
use crate::support::{ApiResponse, App, Caller, ManualNode, eventually};

/// Returns the announcement of a node with a Postgres.
pub fn node_info() -> Value {
    let database =
        json!({ "host": "db1.svc.example", "port": 5432, "sslmode": "verify-full", "backupIntervalSeconds": 3600 });
    json!({ "database": database })
}

/// Announces the services of a node.
pub async fn announce(node: &ManualNode, info: &Value) -> ApiResponse {
    node.send(Method::PUT, "node", |request| request.json(info)).await
}

/// A project without a database, and its node.
pub struct Kit {
    pub app: App,
    pub ada: Caller,
    pub node: ManualNode,
    /// The project's id.
    pub project: Value,
}

impl Kit {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// Starts a server whose configuration `change` modifies.
    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let app = App::with(change).await;
        let ada = app.sign_in("ada").await;
        let project = ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201)["id"].clone();
        let node = ManualNode::new(&app).await;
        announce(&node, &node_info()).await.expect(204);
        Self { app, ada, node, project }
    }

    /// Returns a project with a database that the node has created.
    pub async fn enabled() -> Self {
        let kit = Self::start().await;
        kit.ada.post(DATABASE, json!({})).await.expect(200);
        kit.apply().await;
        kit
    }

    /// Returns the current part of the node; null without one.
    pub async fn part(&self) -> Value {
        self.node.part(&self.project, "database").await
    }

    /// Reports the part as applied, with these changes to the report, and returns the part.
    pub async fn apply_with(&self, changes: Value) -> Value {
        let part = self.part().await;
        self.report("database", status(&part, changes)).await.expect(200);
        part
    }

    /// Reports the part as applied, and returns it.
    pub async fn apply(&self) -> Value {
        self.apply_with(json!({})).await
    }

    /// Reports the current phase as completed.
    pub async fn complete(&self, generation: Option<Value>) {
        let operation = self.part().await["operation"].clone();
        let completed = json!({ "id": operation["id"], "completed": operation["phase"], "generation": generation });
        self.apply_with(json!({ "operation": completed })).await;
    }

    /// Executes the rest of an operation, and returns the phases that the API showed in the meantime.
    pub async fn execute(&self, operation: &Value) -> Vec<String> {
        let mut phases = Vec::new();
        loop {
            let shown = self.operation(operation).await;
            let phase = shown["phase"].as_str().unwrap().to_owned();
            phases.push(phase.clone());
            if phase == "done" {
                return phases;
            }
            let kind = if shown["kind"] == "delete" { "final" } else { "pre_restore" };
            let generation = match phase.as_str() {
                "sealing" => Some(self.generation(kind).await),
                _ => None,
            };
            self.complete(generation).await;
        }
    }

    /// Returns an operation as the API shows it.
    pub async fn operation(&self, id: &Value) -> Value {
        self.ada.get(&operation_path(id)).await.expect(200).clone()
    }

    /// Creates a report of a new generation of the current database.
    pub async fn generation(&self, kind: &str) -> Value {
        generation(&self.project, &self.part().await, kind, self.app.clock.clock_rng().now())
    }

    /// Reports a new scheduled generation, and returns it as the API lists it.
    pub async fn back_up(&self) -> Value {
        let generation = self.generation("scheduled").await;
        self.report("generation", generation).await.expect(200);
        self.generations().await[0].clone()
    }

    /// Returns the generations that the API lists.
    pub async fn generations(&self) -> Vec<Value> {
        self.ada.get(GENERATIONS).await.expect(200)["items"].as_array().unwrap().clone()
    }

    /// Starts to restore a listed generation, and returns the operation's id.
    pub async fn restore(&self, generation: &Value) -> Value {
        let pair = json!({ "epoch": generation["epoch"], "seq": generation["seq"] });
        self.ada.post(RESTORE, pair).await.expect(202)["operationId"].clone()
    }

    /// Starts to delete the database, and returns the operation's id.
    pub async fn delete(&self) -> Value {
        self.ada.post(DELETE, json!({ "confirm": "site" })).await.expect(202)["operationId"].clone()
    }

    /// Sends a report about the project.
    pub async fn report(&self, kind: &str, report: Value) -> ApiResponse {
        self.node.report(&self.project, &[(kind, report)]).await
    }

    /// Waits until the part differs from this one, and returns it.
    pub async fn changed(&self, part: &Value) -> Value {
        let change = async || Some(self.part().await).filter(|now| now != part);
        eventually("the part changes", change).await
    }

    /// Suspends the project as an operator does.
    pub async fn suspend(&self) {
        let (placements, project) = self.placements();
        assert!(placements.suspend(&Actor::operator("test"), project, ("ada", "site")).await.unwrap());
    }

    /// Ends the suspension of the project as an operator does.
    pub async fn resume(&self) {
        let (placements, project) = self.placements();
        assert!(placements.resume(&Actor::operator("test"), project, ("ada", "site")).await.unwrap());
    }

    fn placements(&self) -> (Placements, ProjectId) {
        let config = store::Config::new(Secret::new(self.app.database.url()), "test");
        let placements = Placements::new(Store::new(&config, ClockRng::system()).unwrap());
        (placements, self.project.as_str().unwrap().parse().unwrap())
    }

    /// Returns the state and the epoch of the placement.
    pub async fn placement(&self) -> (String, i64) {
        let placement = self.ada.get(PROJECT).await.expect(200)["placement"].clone();
        (placement["state"].as_str().unwrap().to_owned(), placement["epoch"].as_i64().unwrap())
    }

    /// Returns the audit events about databases, oldest first.
    pub async fn audit(&self) -> Vec<String> {
        let events = self.app.db_audit("ada").await;
        events.into_iter().filter(|event| event.starts_with("database.")).collect()
    }

    /// Returns the kinds of the notifications, oldest first.
    pub async fn notifications(&self) -> Vec<String> {
        let page = self.ada.get("/v1/orgs/ada/notifications").await.expect(200)["items"].clone();
        let kinds = page.as_array().unwrap().iter().rev().map(|item| item["kind"].as_str().unwrap().to_owned());
        kinds.collect()
    }
}

/// Returns the path of an operation.
pub fn operation_path(id: &Value) -> String {
    format!("{DATABASE}/operations/{}", id.as_str().unwrap())
}

/// Returns the path of an operation's abort.
pub fn abort_path(id: &Value) -> String {
    format!("{}/abort", operation_path(id))
}

/// Creates a report of a new generation of a database.
pub fn generation(project: &Value, part: &Value, kind: &str, created_at: Time) -> Value {
    let unique: uuid::Uuid = ClockRng::system().id();
    json!({
        "database": part["id"],
        "key": format!("{}/{unique}.dump", project.as_str().unwrap()),
        "epoch": part["epoch"],
        "kind": kind,
        "sizeBytes": 1024,
        "sha256": "0f".repeat(32),
        "createdAt": created_at,
    })
}

/// Creates the report of a node that has applied the part, with these changes.
pub fn status(part: &Value, changes: Value) -> Value {
    let mut report = json!({
        "database": part["id"],
        "revision": part["revision"],
        "ready": true,
        "sizeBytes": 8_000_000,
        "readOnly": false,
        "freshAt": null,
        "checkedAt": null,
        "backupError": null,
        "recoveredFrom": null,
        "operation": null,
    });
    let fields: &mut Map<String, Value> = report.as_object_mut().unwrap();
    fields.extend(changes.as_object().unwrap().clone());
    report
}

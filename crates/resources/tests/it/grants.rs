//! The grants of a project.

use futures_util::future::join_all;
use kernel::audit::Event;
use kernel::{Resource, ResourceSet};
use resources::{ResourceError, ResourcePart, Target};
use serde_json::json;
use testkit::{Audit, four_at_a_time};

use crate::kit::{Kit, Update};

impl Kit {
    /// Inserts a grant.
    pub async fn db_grant(&self, at: Target, resource: &str) {
        let project = at.project.as_uuid();
        self.db_execute(&format!("INSERT INTO resources.grants VALUES ('{project}', '{resource}', now())")).await;
    }

    async fn granted(&self, at: Target) -> ResourceSet {
        self.resources.grants(at.project).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_are_listed_per_project() {
    let kit = Kit::start().await;
    let (shop, blog) = (kit.db_project("shop").await, kit.db_project("blog").await);
    assert_eq!(kit.granted(shop).await, ResourceSet::default());
    kit.db_grant(shop, "storage").await;
    kit.db_grant(shop, "ai").await;
    kit.db_grant(blog, "email").await;
    assert_eq!(kit.granted(shop).await, ResourceSet { storage: true, ai: true, ..ResourceSet::default() });
    assert_eq!(kit.granted(blog).await, ResourceSet { email: true, ..ResourceSet::default() });
    let unknown = Target { project: kit.store.clock_rng().id(), ..shop };
    assert_eq!(kit.granted(unknown).await, ResourceSet::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_resource_can_be_stored() {
    let kit = Kit::start().await;
    let project = kit.db_project("shop").await;
    for (number, resource) in Resource::ALL.iter().enumerate() {
        kit.db_grant(project, resource.as_str()).await;
        assert_eq!(kit.granted(project).await.iter().collect::<Vec<_>>(), Resource::ALL[..=number]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_of_project_deletes_all_its_rows() {
    let kit = Kit::start().await;
    let project = kit.db_project("shop").await;
    kit.resources.storage_grant(&kit.actor, project).await.unwrap();
    kit.set(project, "API_KEY", "value").await.unwrap();
    kit.db_database(project).await;
    kit.resources.auth_grant(&kit.actor, project).await.unwrap();
    kit.set_provider(project, "codehost", "id", "secret").await.unwrap();
    kit.db_execute("DELETE FROM projects.projects").await;
    // The storage is kept until the node has deleted the objects.
    let kept = [("grants", 0), ("storage", 1), ("secret_sets", 0), ("secrets", 0), ("auth", 0), ("auth_providers", 0)];
    for (table, count) in kept {
        assert_eq!(kit.db_number(&format!("SELECT count(*) FROM resources.{table}")).await, count, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_of_project_deletes_its_secrets_and_providers() {
    let kit = Kit::start().await;
    let (project, other) = (kit.signing_in("shop").await, kit.signing_in("other").await);
    for at in [project, other] {
        kit.set(at, "API_KEY", "value").await.unwrap();
        kit.set_provider(at, "codehost", "id", "secret").await.unwrap();
    }
    let release = async |tx: &mut store::Connection| kit.resources.release(tx, project.project).await;
    kit.store.transaction_unaudited(release).await.unwrap();
    for table in ["secret_sets", "secrets", "auth", "auth_providers"] {
        let of_other = format!("project_id = '{}'", other.project.as_uuid());
        let (all, kept) = (format!("SELECT count(*) FROM resources.{table}"), format!(" WHERE {of_other}"));
        assert_eq!(kit.db_number(&all).await, 1, "{table}");
        assert_eq!(kit.db_number(&(all + &kept)).await, 1, "{table}");
    }
    // A node that still wants the parts receives no value.
    assert!(kit.load(&[project.project]).await.is_empty());
    assert!(kit.load_auth(&[project.project]).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn grant_and_revocation_are_audited_and_published_once() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    let audit = |name| vec![Audit::of(&kit.actor, Event::in_org(name, at.org, at.project, json!({})))];
    kit.resources.storage_revoke(&kit.actor, at).await.unwrap();
    assert_eq!(kit.audited().await, []);
    for repeated in [false, true] {
        kit.resources.storage_grant(&kit.actor, at).await.unwrap();
        assert_eq!(kit.audited().await, if repeated { vec![] } else { audit("storage.grant") });
        let published = vec![Update::Published(at.project, ResourcePart::Storage)];
        assert_eq!(kit.node.take_updates(), if repeated { vec![] } else { published });
    }
    for repeated in [false, true] {
        kit.resources.storage_revoke(&kit.actor, at).await.unwrap();
        assert_eq!(kit.audited().await, if repeated { vec![] } else { audit("storage.revoke") });
        let withdrawn = vec![Update::Withdrawn(at.project, ResourcePart::Storage)];
        assert_eq!(kit.node.take_updates(), if repeated { vec![] } else { withdrawn });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_grants_create_one_prefix_and_one_audit_event() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    let granted = four_at_a_time((0..20).map(|_| kit.resources.storage_grant(&kit.actor, at))).await;
    let prefixes: Vec<_> = granted.into_iter().map(|status| status.unwrap().prefix.unwrap()).collect();
    assert!(prefixes.iter().all(|prefix| *prefix == prefixes[0]), "{prefixes:?}");
    assert_eq!(kit.audited().await.len(), 1);
    let revoked = four_at_a_time((0..20).map(|_| kit.resources.storage_revoke(&kit.actor, at))).await;
    assert!(revoked.iter().all(Result::is_ok));
    assert_eq!(kit.audited().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_grants_and_revocations_leave_one_state_everywhere() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    for _ in 0..5 {
        let grants = join_all((0..5).map(|_| kit.resources.storage_grant(&kit.actor, at)));
        let revocations = join_all((0..5).map(|_| kit.resources.storage_revoke(&kit.actor, at)));
        let (granted, revoked) = tokio::join!(grants, revocations);
        assert!(granted.iter().all(Result::is_ok) && revoked.iter().all(Result::is_ok));
        // The last update of the desired state agrees with the grant, and each change has one audit event.
        let updates = kit.node.take_updates();
        let events: Vec<String> = kit.audited().await.into_iter().map(|audit| audit.event).collect();
        assert_eq!(events.len(), updates.len());
        let is_granted = kit.granted(at).await.storage;
        let count = |event: &str| events.iter().filter(|it| *it == event).count();
        assert_eq!(count("storage.grant") - count("storage.revoke"), usize::from(is_granted));
        kit.resources.storage_revoke(&kit.actor, at).await.unwrap();
        kit.node.take_updates();
        kit.audited().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grant_to_deleted_project_is_refused() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    kit.db_delete(at).await;
    let refused = kit.resources.storage_grant(&kit.actor, at).await.unwrap_err();
    assert!(matches!(refused, ResourceError::ProjectNotFound), "{refused:?}");
    assert_eq!(kit.db_number("SELECT count(*) FROM resources.grants").await, 0);
    assert_eq!(kit.audited().await, []);
}

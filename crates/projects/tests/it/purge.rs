//! The purge of deleted projects, and their limit.

use futures_util::future::join_all;
use kernel::{AbuseLimits, ApiError as _, Plan};
use projects::ProjectError;
use serde_json::json;

use crate::kit::{DAY, Kit, new_project};

impl Kit {
    /// Returns the numbers of projects and of deployments.
    async fn rows(&self) -> (i64, i64) {
        let projects = self.db_number("SELECT count(*) FROM projects.projects").await;
        (projects, self.db_number("SELECT count(*) FROM projects.deployments").await)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_projects_of_an_organization_are_limited_until_their_purge() {
    let mut kit = Kit::start().await;
    let limits = AbuseLimits { deleted_projects_per_org: 3, ..AbuseLimits::default() };
    kit.projects = kit.projects.clone().with_abuse_limits(limits);
    let (org, other) = (kit.db_org("acme", Plan::Free).await, kit.db_org("other", Plan::Free).await);
    // Returns the time of the purge, and then waits.
    let create_and_delete = async |name: &str, seconds: i64| {
        let project = kit.project(&org, name).await.id;
        kit.delete(&org, project, name).await.unwrap();
        let purge_at = kit.now().plus_seconds(30 * DAY);
        kit.advance(seconds);
        purge_at
    };
    let first = create_and_delete("a", 600).await;
    let second = create_and_delete("b", 600).await;
    create_and_delete("c", 600).await;
    let assert_refused = async |purge_at: kernel::Time| {
        let refused = kit.projects.create(&kit.actor, &org, new_project("d")).await.unwrap_err();
        assert_eq!(refused.code(), &ProjectError::DELETED_LIMIT);
        assert_eq!(refused.details(), Some(json!({ "limit": 3, "purgeAt": purge_at })));
        assert!(refused.to_string().contains(&purge_at.to_string()), "{refused}");
        // This advances the clock by a second.
        assert_eq!(kit.audited().await, []);
    };
    assert_refused(first).await;
    // Each organization has its own limit.
    kit.project(&other, "d").await;
    kit.advance(first.unix_seconds() - kit.now().unix_seconds() - 1);
    assert_refused(first).await;
    create_and_delete("d", 60).await;
    assert_refused(second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_project_is_purged_after_30_days() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let kept = kit.project(&org, "kept").await.id;
    kit.deploy(&org, kept, "page").await.unwrap();
    kit.audited().await;
    let project = kit.project(&org, "shop").await.id;
    for page in ["page", "two"] {
        kit.deploy(&org, project, page).await.unwrap();
    }
    let files = kit.files.list();
    kit.audited().await;
    let deleted = kit.now();
    kit.delete(&org, project, "shop").await.unwrap();
    kit.advance(30 * DAY);
    assert_eq!(kit.now(), deleted.plus_seconds(30 * DAY));
    assert_eq!((kit.projects.purge().await.unwrap(), kit.rows().await), (0, (2, 3)));
    kit.advance(1);
    assert_eq!((kit.projects.purge().await.unwrap(), kit.rows().await), (1, (1, 1)));
    let audited = kit.audited().await;
    let [row] = audited.as_slice() else { panic!("one row: {audited:?}") };
    assert_eq!((row.event.as_str(), row.org_id, row.actor_id), ("project.purge", None, None));
    assert_eq!((&row.target, &row.data), (&project.to_string(), &json!({})));
    // A second purge is a no-op. Bundles and other projects are kept.
    assert_eq!((kit.projects.purge().await.unwrap(), kit.audited().await), (0, vec![]));
    assert_eq!(kit.files.list(), files);
    assert!(kit.projects.detail(&org, kept).await.unwrap().live.is_some());

    // Concurrent purges share the work.
    for n in 0..20 {
        let shop = kit.projects.create(&kit.actor, &org, new_project(&format!("shop-{n}"))).await.unwrap();
        kit.deploy(&org, shop.id, "page").await.unwrap();
        kit.delete(&org, shop.id, shop.name.as_str()).await.unwrap();
    }
    kit.advance(31 * DAY);
    let purged = join_all((0..4).map(|_| kit.projects.purge())).await;
    assert_eq!(purged.into_iter().map(Result::unwrap).sum::<usize>(), 20);
    assert_eq!(kit.rows().await, (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn error_of_a_project_does_not_stop_the_purge() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    for name in ["a", "b", "c"] {
        let project = kit.project(&org, name).await.id;
        kit.deploy(&org, project, "page").await.unwrap();
        kit.delete(&org, project, name).await.unwrap();
        kit.audited().await;
        kit.advance(1);
    }
    kit.advance(30 * DAY);
    kit.node.fail(1);
    let failed = kit.projects.purge().await;
    assert!(matches!(failed, Err(ProjectError::Store(_))), "{failed:?}");
    // The oldest deletion came first. Its deployments were deleted in an earlier transaction.
    assert_eq!((kit.rows().await, kit.audited().await.len()), ((1, 0), 2));
    assert_eq!(kit.db_number("SELECT count(*) FROM projects.projects WHERE name = 'a'").await, 1);
    assert_eq!((kit.projects.purge().await.unwrap(), kit.rows().await), (1, (0, 0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_deletes_any_number_of_projects_and_deployments() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    kit.project(&org, "kept").await;
    // All of them were deleted at the same time.
    kit.db_execute(&format!(
        "INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at, deleted_at) \
         SELECT gen_random_uuid(), o.id, 'p' || n, 'public', 0, now(), '{}'::timestamptz - interval '31 days' \
         FROM orgs.orgs o, generate_series(1, 205) n; \
         INSERT INTO projects.deployments (id, project_id, version, digest, size_bytes, declares, has_worker, \
             asset_count, created_by, created_by_subject, created_at) \
         SELECT gen_random_uuid(), p.id, n, sha256('d'), 1, '{{}}', false, 1, gen_random_uuid(), 'ada', now() \
         FROM projects.projects p, generate_series(1, 2500) n WHERE p.name = 'p1'; \
         UPDATE projects.projects SET last_version = 2500, live_version = 2500 WHERE name = 'p1'",
        kit.now()
    ))
    .await;
    assert_eq!(kit.rows().await, (206, 2500));
    assert_eq!((kit.projects.purge().await.unwrap(), kit.rows().await), (205, (1, 0)));
    assert_eq!(kit.audited().await.len(), 205);
}

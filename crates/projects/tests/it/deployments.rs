//! Deployments: consecutive versions, made live and sent to the node atomically.

use futures_util::future::join_all;
use kernel::{AbuseLimits, AccessMode, ApiError as _, Code, Digest, Kind, Limits, Paging, Plan, ResourceSet};
use projects::{
    Deployment, DeploymentRepository as _, DeploymentStatus, Git, LiveAccess, LiveState, Org, ProjectError, Push,
    Rollback, Source,
};
use serde_json::json;

use crate::kit::{DAY, Kit, body, bundle, site};

impl Kit {
    fn limit_deployments(&mut self, limit: u32) {
        let limits = AbuseLimits { deployments_per_project: limit, ..AbuseLimits::default() };
        self.projects = self.projects.clone().with_abuse_limits(limits);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_becomes_the_next_live_version() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    let manifest = br#"{"auth":true,"email":false,"name":"shop","future":{"kept":1}}"#;
    let upload = bundle(&[
        ("svc.json", manifest),
        ("worker/index.js", b"export default {}"),
        ("assets/a", b"a"),
        ("assets/b", b"b"),
    ]);
    let git = Git { commit: Some("0123abc".to_owned()), dirty: Some(false), ..Git::default() };
    let (source, now) = (kit.source(git.clone()), kit.now());
    let deployment = kit.projects.deploy(&kit.actor, &org, project, source, body(&upload, 100)).await.unwrap();
    let digest = Digest::of(&upload);
    let expected = Deployment {
        id: deployment.id,
        version: 1,
        digest,
        size_bytes: upload.len() as i64,
        live: true,
        status: DeploymentStatus::Pending,
        status_message: None,
        git,
        declares: ResourceSet { auth: true, ..ResourceSet::default() },
        has_worker: true,
        asset_count: 2,
        created_by: kit.author(),
        created_at: now,
    };
    assert_eq!(deployment, expected);
    let hostnames = vec!["shop-acme.svc.example".to_owned()];
    let access = LiveAccess { mode: AccessMode::Public, password: None, bypass: None, version: 0 };
    let (owner, hsts, size_bytes) = (org.id.to_string(), Vec::new(), upload.len() as i64);
    let live = LiveState { owner, hostnames, hsts, bundle: digest, size_bytes, version: 1, access };
    assert_eq!(kit.node.take_updates(), [(project, live)]);
    let data = json!({ "version": 1, "digest": digest });
    assert_eq!(kit.audited().await, [kit.audit_row("deployment.create", &org, project, data)]);
    assert_eq!(kit.projects.detail(&org, project).await.unwrap().live, Some(expected.clone()));
    let list = kit.projects.deployments(project, &Paging::default()).await.unwrap();
    assert_eq!((list.items, list.next_cursor), (vec![expected], None));
    // The manifest with its unknown keys is only in the bundle. The deployment contains what it declares.
    let declared = "SELECT count(*) FROM projects.deployments WHERE declares = '{auth}'";
    assert_eq!(kit.db_number(declared).await, 1);
    assert_eq!(kit.files.list(), [format!("bundles/{}", digest.hex())]);
    assert_eq!(std::fs::read(kit.files.path().join("bundles").join(digest.hex())).unwrap(), upload);
}

#[tokio::test(flavor = "multi_thread")]
async fn free_organizations_of_a_creator_have_one_owner() {
    let kit = Kit::start().await;
    let (one, two) = (kit.db_org("one", Plan::Free).await, kit.db_org("two", Plan::Free).await);
    let paid = kit.db_org("paid", Plan::Pro).await;
    let creator = kit.db_user(&one, None).await;
    kit.db_execute(&format!("UPDATE orgs.orgs SET created_by = '{}'", creator.as_uuid())).await;
    let owner_of = async |org: &Org| {
        let project = kit.project(org, "shop").await.id;
        kit.deploy(org, project, "page").await.unwrap();
        kit.audited().await;
        kit.node.take_updates().remove(0).1.owner
    };
    assert_eq!(owner_of(&one).await, creator.to_string());
    assert_eq!(owner_of(&two).await, creator.to_string());
    assert_eq!(owner_of(&paid).await, paid.id.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn deployments_of_a_project_are_limited_in_24_hours() {
    let mut kit = Kit::start().await;
    kit.limit_deployments(3);
    let org = kit.db_org("acme", Plan::Free).await;
    let (shop, blog) = (kit.project(&org, "shop").await.id, kit.project(&org, "blog").await.id);
    for page in ["one", "two", "three"] {
        kit.deploy(&org, shop, page).await.unwrap();
        kit.advance(60);
    }
    let files = kit.files.list();
    let assert_refused = async |page: &str, retry_after: i64| {
        let error = kit.deploy(&org, shop, page).await.unwrap_err();
        assert_eq!((error.code(), error.details()), (&Code::RATE_LIMITED, Some(json!({ "limit": 3 }))), "{error}");
        assert_eq!(error.retry_after(), Some(retry_after), "{error}");
    };
    // A bundle that the organization already has is refused, too.
    assert_refused("one", DAY - 180).await;
    assert_refused("four", DAY - 180).await;
    // A refused bundle is neither stored nor counted.
    assert_eq!((kit.files.list(), kit.audited().await), (files, vec![]));
    assert_eq!(kit.db_number("SELECT count(*) FROM projects.bundles").await, 3);
    assert_eq!(kit.db_number("SELECT last_version FROM projects.projects WHERE name = 'shop'").await, 3);
    // Rollbacks create no deployment, and another project has its own limit.
    kit.projects.rollback(&kit.actor, &org, shop, Rollback { version: 1 }).await.unwrap();
    kit.deploy(&org, blog, "one").await.unwrap();
    // The fixture advanced the clock by a second when it read the audit log.
    kit.advance(DAY - 182);
    assert_refused("four", 1).await;
    kit.advance(1);
    assert_eq!(kit.deploy(&org, shop, "four").await.unwrap().version, 4);
    assert_refused("five", 60).await;
    // With a limit of 0, all deployments are refused.
    kit.limit_deployments(0);
    let refused = kit.deploy(&org, blog, "one").await.unwrap_err();
    assert_eq!((refused.code(), refused.retry_after()), (&Code::RATE_LIMITED, Some(DAY)));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_deployments_do_not_exceed_the_limit_together() {
    let mut kit = Kit::start().await;
    kit.limit_deployments(3);
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    let pages: Vec<String> = (0..8).map(|n| format!("page {n}")).collect();
    let outcomes = join_all(pages.iter().map(|page| kit.deploy(&org, project, page))).await;
    let (deployed, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!(deployed.len(), 3, "{refused:?}");
    for refused in refused {
        assert_eq!(refused.unwrap_err().code(), &Code::RATE_LIMITED);
    }
    let versions = kit.projects.deployments(project, &Paging::default()).await.unwrap().items;
    assert!(versions.iter().map(|deployment| deployment.version).eq([3, 2, 1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn bundles_of_an_organization_have_a_size_limit() {
    let mut limits = Limits::default();
    let size = site("first").len().max(site("other").len()) as u64;
    limits.free.bundle_bytes = size;
    let kit = Kit::with(limits).await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    // The same bundle counts once.
    for _ in 0..2 {
        kit.deploy(&org, project, "first").await.unwrap();
    }
    let stored = kit.files.list();
    let refused = kit.deploy(&org, project, "other").await.unwrap_err();
    assert_eq!(refused.code(), &ProjectError::BUNDLE_BYTES_LIMIT);
    assert_eq!(refused.details().unwrap()["limit"], json!(size));
    assert_eq!(stored.len(), 1);
    assert_eq!(kit.files.list(), stored);
    // Each organization has its own limit, also for a bundle that the store already contains.
    let other = kit.db_org("other", Plan::Free).await;
    kit.audited().await;
    let project = kit.project(&other, "shop").await.id;
    kit.deploy(&other, project, "first").await.unwrap();
    kit.deploy(&other, project, "other").await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_bundles_of_an_organization_are_counted_once() {
    let mut limits = Limits::default();
    let pages: Vec<String> = (0..8).map(|n| format!("page {n}")).collect();
    let sizes: Vec<usize> = pages.iter().map(|page| site(page).len()).collect();
    // The limit permits each of the bundles, and no two of them.
    limits.free.bundle_bytes = *sizes.iter().max().unwrap() as u64;
    assert!(limits.free.bundle_bytes < 2 * *sizes.iter().min().unwrap() as u64);
    let kit = Kit::with(limits).await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    let outcomes = join_all(pages.iter().map(|page| kit.deploy(&org, project, page))).await;
    let (deployed, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!(deployed.len(), 1);
    for refused in refused {
        assert_eq!(refused.unwrap_err().code(), &ProjectError::BUNDLE_BYTES_LIMIT);
    }
    let other = kit.db_org("other", Plan::Free).await;
    kit.audited().await;
    let project = kit.project(&other, "shop").await.id;
    for outcome in join_all(pages.iter().map(|_| kit.deploy(&other, project, &pages[0]))).await {
        outcome.unwrap();
    }
    assert_eq!(kit.db_number("SELECT count(*)::int FROM projects.bundles").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_receives_the_active_hostnames() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let (shop, blog) = (kit.project(&org, "shop").await.id, kit.project(&org, "blog").await.id);
    for (name, project, state) in [
        ("www.example.org", shop, "active"),
        ("claimed.example.org", shop, "pending_dns"),
        ("blog.example.org", blog, "active"),
    ] {
        let project = project.as_uuid();
        kit.db_execute(&format!(
            "INSERT INTO projects.hostnames VALUES ('{name}', '{project}', 'custom', '{state}', 't', NULL, now(), NULL)"
        ))
        .await;
    }
    kit.deploy(&org, shop, "page").await.unwrap();
    let [(project, live)] = kit.node.take_updates().try_into().unwrap();
    assert_eq!((project, live.version), (shop, 1));
    assert_eq!(live.hostnames, ["shop-acme.svc.example", "www.example.org"]);
    let detail = kit.projects.detail(&org, shop).await.unwrap();
    let listed: Vec<_> = detail.hostnames.iter().map(|hostname| hostname.name.as_str()).collect();
    // The default hostname comes first.
    assert_eq!(listed, ["shop-acme.svc.example", "claimed.example.org", "www.example.org"]);
    assert_eq!(detail.project.hostname, "shop-acme.svc.example");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_concurrent_upload_leaves_no_version_gap() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    kit.node.fail(1);
    let pages: Vec<String> = (0..20).map(|n| format!("page {n}")).collect();
    let outcomes = join_all(pages.iter().map(|page| kit.deploy(&org, project, page))).await;
    let (deployed, failed): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    let [Err(failed)] = failed.as_slice() else { panic!("one failure is expected: {failed:?}") };
    assert_eq!(failed.code().kind, Kind::Internal);
    let mut versions: Vec<i32> = deployed.iter().map(|deployment| deployment.as_ref().unwrap().version).collect();
    versions.sort_unstable();
    assert_eq!(versions, (1..=19).collect::<Vec<_>>());

    let list = kit.projects.deployments(project, &Paging::default()).await.unwrap().items;
    assert!(list.iter().map(|deployment| deployment.version).eq((1..=19).rev()));
    let live: Vec<i32> = list.iter().filter(|deployment| deployment.live).map(|it| it.version).collect();
    assert_eq!(live, [19]);
    assert_eq!(kit.audited().await.len(), 19);
    // The row lock orders the node updates by version.
    let updates: Vec<i32> = kit.node.take_updates().into_iter().map(|(_, live)| live.version).collect();
    let retried = updates[1..].to_vec();
    assert_eq!((updates[0], retried), (1, (1..=19).collect()));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_deploy_keeps_the_live_version() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    let first = kit.deploy(&org, project, "one").await.unwrap();
    kit.audited().await;
    kit.node.fail(2);
    for _ in 0..2 {
        let failed = kit.deploy(&org, project, "two").await;
        assert!(matches!(failed, Err(ProjectError::Store(_))), "{failed:?}");
    }
    assert_eq!(kit.audited().await, []);
    assert_eq!(kit.projects.detail(&org, project).await.unwrap().live, Some(first));
    assert_eq!(kit.db_number("SELECT last_version FROM projects.projects").await, 1);
    assert_eq!(kit.deploy(&org, project, "two").await.unwrap().version, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_that_cannot_be_deployed_is_not_counted() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    let gone = kit.deploy(&org, kit.store.clock_rng().id(), "page").await;
    assert!(matches!(gone, Err(ProjectError::NotFound)), "{gone:?}");
    let push = Some(Push { repository: kit.store.clock_rng().id(), number: 1 });
    let source = Source { push, ..kit.source(Git::default()) };
    let ended = kit.projects.deploy(&kit.actor, &org, project, source, body(&site("page"), 1000)).await;
    assert!(matches!(ended, Err(ProjectError::PushNotPending)), "{ended:?}");
    assert_eq!(kit.db_number("SELECT count(*)::int FROM projects.bundles").await, 0);
    assert!(kit.files.list().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_per_project() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let (shop, blog) = (kit.project(&org, "shop").await.id, kit.project(&org, "blog").await.id);
    for version in 1..=2 {
        for project in [shop, blog] {
            // The same bundle again is a new version.
            assert_eq!(kit.deploy(&org, project, "same").await.unwrap().version, version);
        }
    }
    assert_eq!(kit.files.list(), [format!("bundles/{}", Digest::of(&site("same")).hex())]);
    let unknown = kit.store.clock_rng().id();
    let gone = kit.deploy(&org, unknown, "same").await;
    assert!(matches!(gone, Err(ProjectError::NotFound)), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn serving_deployment_retires_the_others() {
    use DeploymentStatus::{Crashed, Failed, Pending, Retired, Serving};
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    for page in ["one", "two", "three"] {
        kit.deploy(&org, project, page).await.unwrap();
    }
    let reported = async |version, status, message: Option<&str>| {
        let observed =
            async |tx: &mut store::Connection| tx.deployment_set_status(project, version, status, message).await;
        kit.store.transaction_unaudited(observed).await.unwrap();
    };
    let statuses = async || {
        let list = kit.projects.deployments(project, &Paging::default()).await.unwrap().items;
        list.into_iter().map(|it| (it.version, it.status)).collect::<Vec<_>>()
    };
    assert_eq!(statuses().await, [(3, Pending), (2, Pending), (1, Pending)]);
    // Version 1 is serving while version 3 starts. Version 2 was skipped.
    reported(1, Serving, None).await;
    assert_eq!(statuses().await, [(3, Pending), (2, Retired), (1, Serving)]);
    reported(3, Failed, Some("no such module")).await;
    reported(1, Crashed, Some("it did not answer for 2 s")).await;
    assert_eq!(statuses().await, [(3, Failed), (2, Retired), (1, Crashed)]);
    let third = kit.projects.deployment(project, 3).await.unwrap();
    assert_eq!((third.live, third.status_message.as_deref()), (true, Some("no such module")));
    // A rollback resets the status.
    let target = kit.projects.rollback(&kit.actor, &org, project, Rollback { version: 2 }).await.unwrap();
    assert_eq!((target.status, target.live), (Pending, true));
    reported(2, Serving, None).await;
    assert_eq!(statuses().await, [(3, Failed), (2, Serving), (1, Retired)]);
    assert_eq!(kit.projects.deployment(project, 1).await.unwrap().status_message, None);
    assert!(matches!(kit.projects.deployment(project, 4).await, Err(ProjectError::VersionNotFound)));
}

//! Renaming, overview and deletion of projects.

use futures_util::future::join_all;
use kernel::{AccessMode, ApiError as _, Paging, Plan, ProjectId, ResourceSet, Role};
use projects::{
    AccessChange, Authorize, HostnameState, NewHostname, Org, Overview, ProjectChange, ProjectDetail, ProjectError,
    ProjectRepository as _, Rollback,
};
use serde_json::json;

use crate::kit::{Kit, body, bundle, new_project};

impl Kit {
    async fn rename(&self, org: &Org, project: ProjectId, to: &str) -> Result<ProjectDetail, ProjectError> {
        self.projects.rename(&self.actor, org, project, ProjectChange { name: to.parse().unwrap() }).await
    }

    async fn find(&self, org: &Org, name: &str) -> Option<ProjectId> {
        self.connection().await.project_find(org.id, name).await.unwrap()
    }

    /// Adds a custom hostname and verifies it by CNAME.
    async fn add_hostname(&self, org: &Org, project: ProjectId, name: &str) {
        let new = NewHostname { name: name.to_owned() };
        self.projects.hostname_add(&self.actor, org, project, None, new).await.unwrap();
        self.records.cname(name, "fallback.svc.example");
        let active = self.projects.hostname_verify(&self.actor, project, name).await.unwrap();
        assert_eq!(active.state, HostnameState::Active);
    }

    async fn names(&self, org: &Org) -> Vec<String> {
        let list = self.projects.list(org, None, &Paging::default()).await.unwrap();
        list.items.into_iter().map(|project| project.name.to_string()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rename_changes_the_default_hostname() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    kit.add_hostname(&org, project, "www.example.org").await;
    kit.deploy(&org, project, "page").await.unwrap();
    kit.audited().await;
    kit.node.take_updates();
    let before = kit.projects.detail(&org, project).await.unwrap();

    let renamed = kit.rename(&org, project, "store").await.unwrap();
    let mut expected = before.clone();
    expected.project.name = "store".parse().unwrap();
    expected.project.hostname = "store-acme.svc.example".to_owned();
    expected.hostnames[0].name = "store-acme.svc.example".to_owned();
    assert_eq!(renamed, expected);
    assert_eq!(kit.projects.detail(&org, project).await.unwrap(), expected);
    let data = json!({ "from": "shop", "to": "store", "hostname": "store-acme.svc.example" });
    assert_eq!(kit.audited().await, [kit.audit_row("project.rename", &org, project, data)]);
    let [(updated, live)] = kit.node.take_updates().try_into().unwrap();
    assert_eq!((updated, live.version), (project, 1));
    assert_eq!(live.hostnames, ["store-acme.svc.example", "www.example.org"]);
    assert_eq!((kit.find(&org, "shop").await, kit.find(&org, "store").await), (None, Some(project)));
    assert_eq!(kit.names(&org).await, ["store"]);

    // Renaming to the same name is a no-op.
    assert_eq!(kit.rename(&org, project, "store").await.unwrap(), expected);
    assert_eq!((kit.audited().await, kit.node.take_updates().len()), (vec![], 0));

    // The old name and its hostname are free immediately, and can be taken back.
    let second = kit.project(&org, "shop").await;
    assert_eq!(second.hostname, "shop-acme.svc.example");
    kit.rename(&org, second.id, "third").await.unwrap();
    assert_eq!(kit.rename(&org, project, "shop").await.unwrap(), before);

    // The node receives no update for a project without a deployment.
    assert_eq!(kit.node.take_updates().len(), 1);
    assert_eq!(kit.node.take_removed(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn rename_to_a_name_in_use_is_rejected() {
    let kit = Kit::start().await;
    let (long, short) = (kit.db_org("b-c", Plan::Free).await, kit.db_org("c", Plan::Free).await);
    kit.project(&long, "a").await;
    let project = kit.project(&short, "x").await.id;
    kit.project(&short, "taken").await;
    kit.deploy(&short, project, "page").await.unwrap();
    kit.audited().await;
    kit.node.take_updates();
    let before = kit.projects.detail(&short, project).await.unwrap();
    let unknown = kit.store.clock_rng().id();
    for (org, project, name, code) in [
        (&short, project, "taken", &ProjectError::NAME_TAKEN),
        // The project `a` in `b-c` has this hostname.
        (&short, project, "a-b", &ProjectError::HOSTNAME_TAKEN),
        (&long, project, "free", &kernel::Code::NOT_FOUND),
        (&short, unknown, "free", &kernel::Code::NOT_FOUND),
    ] {
        let refused = kit.rename(org, project, name).await.unwrap_err();
        assert_eq!(refused.code(), code, "{name}: {refused}");
    }
    kit.node.fail(1);
    let failed = kit.rename(&short, project, "free").await;
    assert!(matches!(failed, Err(ProjectError::Store(_))), "{failed:?}");
    assert_eq!(kit.projects.detail(&short, project).await.unwrap(), before);
    assert_eq!(kit.audited().await, []);
    // Names are unique only within an organization.
    assert_eq!(kit.rename(&short, project, "a").await.unwrap().project.hostname, "a-c.svc.example");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_renames_and_creations_have_one_winner() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Pro).await;
    let mut projects = Vec::new();
    for n in 0..8 {
        projects.push(kit.project(&org, &format!("shop-{n}")).await.id);
    }
    let renames = join_all(projects.iter().map(|project| kit.rename(&org, *project, "shop")));
    let creates = join_all((0..8).map(|_| kit.projects.create(&kit.actor, &org, new_project("shop"))));
    let (renames, creates) = futures_util::join!(renames, creates);
    let outcomes: Vec<_> =
        renames.into_iter().map(|it| it.map(|it| it.project)).chain(creates).filter(Result::is_ok).collect();
    let [Ok(winner)] = outcomes.as_slice() else { panic!("expected one winner: {outcomes:?}") };
    assert_eq!(kit.find(&org, "shop").await, Some(winner.id));
    assert_eq!(kit.audited().await.len(), 1);
    // Each project has exactly one default hostname, which contains its name.
    let strays = "SELECT count(*) FROM projects.projects p WHERE 1 <> (SELECT count(*) FROM projects.hostnames h \
                  WHERE h.project_id = p.id AND h.name = p.name || '-acme.svc.example')";
    assert_eq!(kit.db_number(strays).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_project_is_not_found() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    kit.add_hostname(&org, project, "www.example.org").await;
    let claim = NewHostname { name: "claimed.example.org".to_owned() };
    kit.projects.hostname_add(&kit.actor, &org, project, None, claim).await.unwrap();
    kit.deploy(&org, project, "one").await.unwrap();
    kit.deploy(&org, project, "two").await.unwrap();
    let password = Some("correct horse battery".to_owned());
    let change = AccessChange { mode: AccessMode::Password, password };
    kit.projects.access_set(&kit.actor, &org, project, change).await.unwrap();
    kit.projects.access_bypass_new(&kit.actor, &org, project).await.unwrap();
    let user = kit.db_user(&org, Some(Role::Admin)).await;
    kit.audited().await;
    kit.node.take_updates();

    // A wrong confirmation is rejected.
    let before = kit.projects.detail(&org, project).await.unwrap();
    for confirm in ["", "SHOP", "shop ", "blog", "acme/shop"] {
        let refused = kit.delete(&org, project, confirm).await.unwrap_err();
        assert_eq!(refused.code(), &ProjectError::CONFIRM_MISMATCH, "{confirm:?}: {refused}");
    }
    kit.node.fail(1);
    let failed = kit.delete(&org, project, "shop").await;
    assert!(matches!(failed, Err(ProjectError::Store(_))), "{failed:?}");
    assert_eq!(kit.projects.detail(&org, project).await.unwrap(), before);
    assert_eq!((kit.audited().await, kit.node.take_updates().len()), (vec![], 0));
    kit.node.take_removed();

    kit.delete(&org, project, "shop").await.unwrap();
    assert_eq!(kit.audited().await, [kit.audit_row("project.delete", &org, project, json!({ "name": "shop" }))]);
    assert_eq!((kit.node.take_removed(), kit.node.take_updates().len()), (vec![project], 0));
    assert_eq!((kit.names(&org).await, kit.find(&org, "shop").await), (vec![], None));
    let assert_not_found =
        |what: &str, it: Option<ProjectError>| assert!(matches!(it, Some(ProjectError::NotFound)), "{what}: {it:?}");
    let (projects, actor) = (&kit.projects, &kit.actor);
    assert_not_found("detail", projects.detail(&org, project).await.err());
    assert_not_found("overview", projects.overview(&org, project).await.err());
    assert_not_found("deploy", kit.deploy(&org, project, "three").await.err());
    assert_not_found("rollback", projects.rollback(actor, &org, project, Rollback { version: 1 }).await.err());
    assert_not_found("rename", kit.rename(&org, project, "store").await.err());
    assert_not_found("access", projects.access(project).await.err());
    let change = AccessChange { mode: AccessMode::Public, password: None };
    assert_not_found("access set", projects.access_set(actor, &org, project, change).await.err());
    assert_not_found("bypass", projects.access_bypass_new(actor, &org, project).await.err());
    let claim = NewHostname { name: "b.example.org".to_owned() };
    assert_not_found("claim", projects.hostname_add(actor, &org, project, None, claim).await.err());
    assert_not_found("delete", kit.delete(&org, project, "shop").await.err());
    assert_eq!(projects.hostnames(project).await.unwrap(), []);
    let request = Authorize { to: "shop-acme.svc.example".to_owned(), next: "/".to_owned() };
    let refused = projects.access_authorize(user, request).await;
    assert!(matches!(refused, Err(ProjectError::UnknownHostname)), "{refused:?}");
    assert_eq!((kit.audited().await, kit.node.take_updates().len()), (vec![], 0));
    let secrets =
        "SELECT count(*) FROM projects.projects WHERE coalesce(access_password_hash, bypass_key_hash::text) <> ''";
    assert_eq!(kit.db_number(secrets).await, 0);

    // Its name and all its hostnames are free immediately.
    let next = kit.project(&org, "shop").await;
    assert_eq!((next.hostname.as_str(), next.id == project), ("shop-acme.svc.example", false));
    kit.add_hostname(&org, next.id, "www.example.org").await;
    kit.add_hostname(&org, next.id, "claimed.example.org").await;
    assert_eq!(kit.deploy(&org, next.id, "one").await.unwrap().version, 1);
    // Deleting a project and creating it again works repeatedly.
    kit.delete(&org, next.id, "shop").await.unwrap();
    kit.audited().await;
    kit.project(&org, "shop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_project_does_not_count_towards_the_limit() {
    let kit = Kit::start().await;
    let (org, other) = (kit.db_org("acme", Plan::Free).await, kit.db_org("other", Plan::Free).await);
    let mut projects = Vec::new();
    for name in ["a", "b", "c"] {
        projects.push(kit.project(&org, name).await.id);
    }
    let refused = kit.projects.create(&kit.actor, &org, new_project("d")).await;
    assert!(matches!(refused, Err(ProjectError::Limit { count: 3, .. })), "{refused:?}");
    let refused = kit.delete(&other, projects[0], "a").await;
    assert!(matches!(refused, Err(ProjectError::NotFound)), "{refused:?}");
    kit.delete(&org, projects[0], "a").await.unwrap();
    kit.audited().await;
    kit.project(&org, "d").await;
    let refused = kit.projects.create(&kit.actor, &org, new_project("e")).await;
    assert!(matches!(refused, Err(ProjectError::Limit { count: 3, .. })), "{refused:?}");
    assert_eq!(kit.names(&org).await, ["b", "c", "d"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_renames_and_uploads_end_in_one_state() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.live_project(&org).await;
    let changes = (0..20).map(async |n| {
        if n % 2 == 0 {
            kit.deploy(&org, project, &format!("page {n}")).await.unwrap();
        } else {
            kit.rename(&org, project, &format!("shop-{n}")).await.unwrap();
        }
    });
    join_all(changes).await;
    let detail = kit.projects.detail(&org, project).await.unwrap();
    let updates = kit.node.take_updates();
    let (_, last) = updates.last().unwrap();
    assert_eq!((last.version, &last.hostnames), (11, &vec![detail.project.hostname.clone()]));
    assert_eq!(detail.project.hostname, format!("{}-acme.svc.example", detail.project.name));
    assert!(updates.is_sorted_by_key(|(_, live)| live.version));
    assert_eq!((updates.len(), kit.audited().await.len()), (20, 20));
    assert_eq!(kit.db_number("SELECT count(*) FROM projects.hostnames").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_wins_over_concurrent_changes() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    for round in 0..5 {
        let project = kit.project(&org, "shop").await.id;
        kit.deploy(&org, project, "page").await.unwrap();
        kit.audited().await;
        kit.node.take_updates();
        kit.node.take_removed();
        let deploys = join_all((0..6).map(async |n| kit.deploy(&org, project, &format!("page {n}")).await.map(drop)));
        let renames = join_all((0..3).map(async |n| kit.rename(&org, project, &format!("s{n}")).await.map(drop)));
        let claims = join_all((0..3).map(async |n| {
            let name = NewHostname { name: format!("r{round}-{n}.example.org") };
            kit.projects.hostname_add(&kit.actor, &org, project, None, name).await.map(drop)
        }));
        // Confirm with the current name, which changes concurrently.
        let delete = async {
            loop {
                match kit.delete(&org, project, "shop").await {
                    Err(ProjectError::ConfirmMismatch(name)) => match kit.delete(&org, project, &name).await {
                        Err(ProjectError::ConfirmMismatch(_)) => {}
                        deleted => break deleted.unwrap(),
                    },
                    deleted => break deleted.unwrap(),
                }
            }
        };
        let (deploys, renames, claims, ()) = futures_util::join!(deploys, renames, claims, delete);
        let outcomes: Vec<_> = deploys.into_iter().chain(renames).chain(claims).collect();
        let is_expected = |it: &Result<(), ProjectError>| matches!(it, Ok(()) | Err(ProjectError::NotFound));
        assert!(outcomes.iter().all(is_expected), "{outcomes:?}");
        // One audit row per successful change, and one for the deletion.
        let done = outcomes.iter().filter(|it| it.is_ok()).count();
        let audited = kit.audited().await;
        assert_eq!((audited.len(), kit.node.take_removed()), (done + 1, vec![project]), "{audited:?}");
        let id = project.as_uuid();
        let left = format!("SELECT count(*) FROM projects.hostnames WHERE project_id = '{id}'");
        assert_eq!(kit.db_number(&left).await, 0);
        assert_eq!(kit.names(&org).await, [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn overview_shows_the_live_and_the_latest_deployments() {
    let kit = Kit::start().await;
    let (org, other) = (kit.db_org("acme", Plan::Free).await, kit.db_org("other", Plan::Free).await);
    let project = kit.project(&org, "shop").await.id;
    let empty = Overview { live: None, deployments: Vec::new() };
    assert_eq!(kit.projects.overview(&org, project).await.unwrap(), empty);

    let mut all = Vec::new();
    for version in 1..=7 {
        let manifest = if version == 1 { br#"{"database":true,"email":true}"#.as_slice() } else { b"{}" };
        let upload = bundle(&[("svc.json", manifest), ("assets/index.html", &[version])]);
        let source = kit.source(projects::Git::default());
        let deployment = kit.projects.deploy(&kit.actor, &org, project, source, body(&upload, 1000)).await.unwrap();
        all.insert(0, deployment);
        let first = &mut all;
        first.iter_mut().skip(1).for_each(|older| older.live = false);
        let overview = kit.projects.overview(&org, project).await.unwrap();
        assert_eq!(overview.live.as_ref(), Some(&all[0]));
        assert_eq!(overview.deployments, all[..all.len().min(5)]);
    }

    // The live deployment is included even if it is not among the latest.
    kit.projects.rollback(&kit.actor, &org, project, Rollback { version: 1 }).await.unwrap();
    all[0].live = false;
    all[6].live = true;
    assert_eq!(all[6].declares, ResourceSet { database: true, email: true, ..ResourceSet::default() });
    let expected = Overview { live: Some(all[6].clone()), deployments: all[..5].to_vec() };
    assert_eq!(kit.projects.overview(&org, project).await.unwrap(), expected);

    let unknown = kit.store.clock_rng().id();
    for (org, project) in [(&other, project), (&org, unknown)] {
        let refused = kit.projects.overview(org, project).await;
        assert!(matches!(refused, Err(ProjectError::NotFound)), "{refused:?}");
    }
}

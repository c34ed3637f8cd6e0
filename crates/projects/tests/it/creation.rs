//! Project creation: the default hostname and the plan's limit.

use futures_util::future::join_all;
use kernel::{AccessMode, ApiError as _, Limits, Plan};
use projects::{
    Access, Hostname, HostnameKind, HostnameState, HostnameTls, NewProject, Notice, Org, Placement, Project,
    ProjectChange, ProjectDetail, ProjectError, ProjectName, Rollback,
};
use serde_json::json;

use crate::kit::{Kit, new_project};

#[tokio::test(flavor = "multi_thread")]
async fn new_project_has_a_default_hostname_and_no_deployment() {
    let kit = Kit::start().await;
    let (org, now) = (kit.db_org("acme", Plan::Free).await, kit.now());
    let project = kit.projects.create(&kit.actor, &org, new_project("shop")).await.unwrap();
    let hostname = "shop-acme.svc.example".to_owned();
    let expected = Project {
        id: project.id,
        name: "shop".parse().unwrap(),
        org: "acme".to_owned(),
        hostname: hostname.clone(),
        created_at: now,
    };
    assert_eq!(project, expected);
    let data = json!({ "name": "shop", "hostname": hostname });
    assert_eq!(kit.audited().await, [kit.audit_row("project.create", &org, project.id, data)]);

    let mut detail = ProjectDetail {
        project: expected,
        live: None,
        hostnames: vec![Hostname {
            name: hostname,
            kind: HostnameKind::Default,
            state: HostnameState::Active,
            verify: Vec::new(),
            verification_token: None,
            last_error: None,
            checks: Vec::new(),
            created_at: now,
            verified_at: Some(now),
            tls: HostnameTls::OFF,
            hsts: None,
            held_by_another_org: false,
        }],
        access: Access { mode: AccessMode::Public },
        placement: None,
    };
    assert_eq!(kit.projects.detail(&org, project.id).await.unwrap(), detail);

    // These rows stand for rows that other contexts write.
    let id = project.id.as_uuid();
    kit.db_execute(&format!(
        "UPDATE projects.projects SET access_mode = 'org';
         INSERT INTO convergence.placements VALUES ('{id}', NULL, 'pending', 7, now())"
    ))
    .await;
    detail.access.mode = AccessMode::Org;
    detail.placement = Some(Placement { state: "pending".to_owned(), epoch: 7 });
    assert_eq!(kit.projects.detail(&org, project.id).await.unwrap(), detail);

    let unknown = kit.store.clock_rng().id();
    assert!(matches!(kit.projects.detail(&org, unknown).await, Err(ProjectError::NotFound)));
}

#[tokio::test(flavor = "multi_thread")]
async fn project_is_not_found_in_another_organization() {
    let kit = Kit::start().await;
    let (org, other) = (kit.db_org("acme", Plan::Free).await, kit.db_org("other", Plan::Free).await);
    let project = kit.project(&org, "site").await;
    kit.deploy(&org, project.id, "one").await.unwrap();
    kit.audited().await;
    assert!(matches!(kit.projects.detail(&other, project.id).await, Err(ProjectError::NotFound)));
    assert!(matches!(kit.deploy(&other, project.id, "two").await, Err(ProjectError::NotFound)));
    let rollback = kit.projects.rollback(&kit.actor, &other, project.id, Rollback { version: 1 }).await;
    assert!(matches!(rollback, Err(ProjectError::NotFound)), "{rollback:?}");
    assert_eq!(kit.audited().await, []);
    assert_eq!(kit.db_number("SELECT last_version FROM projects.projects").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_creation_changes_nothing() {
    let kit = Kit::start().await;
    let (acme, short) = (kit.db_org("b-c", Plan::Free).await, kit.db_org("c", Plan::Free).await);
    kit.project(&acme, "a").await;
    let unknown = Org { id: kit.store.clock_rng().id(), slug: "unknown".to_owned(), plan: Plan::Pro };
    for (org, name, code) in [
        (&acme, "a", &ProjectError::NAME_TAKEN),
        // The label of both hostnames is `a-b-c`.
        (&short, "a-b", &ProjectError::HOSTNAME_TAKEN),
        (&unknown, "a", &kernel::Code::NOT_FOUND),
    ] {
        let refused = kit.projects.create(&kit.actor, org, new_project(name)).await.unwrap_err();
        assert_eq!(refused.code(), code, "{name}: {refused}");
    }
    assert_eq!(kit.audited().await, []);
    assert_eq!(kit.db_number("SELECT count(*) FROM projects.projects").await, 1);
    // Names are unique only within an organization.
    assert_eq!(kit.project(&short, "a").await.hostname, "a-c.svc.example");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creation_respects_the_limit() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let names: Vec<String> = (0..20).map(|n| format!("shop-{n}")).collect();
    let outcomes = join_all(names.iter().map(|name| kit.projects.create(&kit.actor, &org, new_project(name)))).await;
    let refused: Vec<ProjectError> = outcomes.into_iter().filter_map(Result::err).collect();
    assert_eq!(refused.len(), 17);
    for refused in refused {
        assert!(matches!(refused, ProjectError::Limit { limit: 3, count: 3, plan: Plan::Free }), "{refused:?}");
        assert_eq!(refused.code(), &ProjectError::LIMIT);
        assert_eq!(refused.details(), Some(json!({ "limit": 3, "count": 3, "plan": "free" })));
    }
    // The log has one event for each of the three projects, and one for the only notification.
    let audited = kit.audited().await;
    assert_eq!(audited.iter().filter(|row| row.event == "notification.raise").count(), 1);
    assert_eq!(audited.len(), 4);
    assert_eq!(*kit.orgs.raised.lock().unwrap(), [(org.id, Notice::ProjectLimit { limit: 3 })]);
    assert_eq!(kit.db_number("SELECT count(*) FROM projects.projects").await, 3);
    assert_eq!(kit.db_number("SELECT count(*) FROM projects.hostnames").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn creation_uses_the_plan_read_under_the_lock() {
    let mut limits = Limits::default();
    (limits.free.projects, limits.pro.projects) = (1, 2);
    let kit = Kit::with(limits).await;
    let org = kit.db_org("acme", Plan::Free).await;
    kit.project(&org, "one").await;
    // The plan changes after the request started.
    kit.db_execute("UPDATE orgs.orgs SET plan = 'pro'").await;
    kit.project(&org, "two").await;
    kit.db_execute("UPDATE orgs.orgs SET plan = 'free'").await;
    let org = Org { plan: Plan::Pro, ..org };
    let refused = kit.projects.create(&kit.actor, &org, new_project("three")).await;
    assert!(matches!(refused, Err(ProjectError::Limit { limit: 1, count: 2, plan: Plan::Free })));
}

#[tokio::test(flavor = "multi_thread")]
async fn too_long_hostname_label_ends_in_a_digest() {
    let kit = Kit::start().await;
    let (long, whole) = ("o".repeat(40), "p".repeat(22));
    let org = kit.db_org(&long, Plan::Pro).await;
    let label = |project: &Project| project.hostname.strip_suffix(".svc.example").unwrap().to_owned();
    assert_eq!(label(&kit.project(&org, &whole).await), format!("{whole}-{long}"));

    // The first two names differ only in the part that is truncated. The third would end in two dashes.
    let mut labels = Vec::new();
    for name in [format!("{}a", "p".repeat(39)), format!("{}b", "p".repeat(39)), format!("{}--p", "p".repeat(37))] {
        labels.push(label(&kit.project(&org, &name).await));
    }
    let twin = kit.db_org(&format!("{}x", "o".repeat(39)), Plan::Pro).await;
    labels.push(label(&kit.project(&twin, &format!("{}a", "p".repeat(39))).await));
    for label in &labels {
        let (kept, digest) = label.rsplit_once('-').unwrap();
        assert!(label.len() <= 63 && !kept.ends_with('-'), "{label}");
        assert!(digest.len() == 8 && digest.bytes().all(|b| b.is_ascii_hexdigit()), "{label}");
    }
    labels.sort();
    labels.dedup();
    assert_eq!(labels.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn name_with_the_prefix_of_punycode_is_rejected() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Pro).await;
    for name in ["xn--a", "xn--mnchen-3ya"] {
        let error = name.parse::<ProjectName>().unwrap_err().to_string();
        assert_eq!(error, "must not begin with xn--, as internationalized names do");
    }
    // The API finds the default hostname of any other name with two hyphens.
    for name in ["ab--cd", "xn-a", "a-xn--b"] {
        let created = kit.project(&org, name).await;
        assert_eq!(created.hostname, format!("{name}-acme.svc.example"));
        let deleted = kit.projects.hostname_delete(&kit.actor, &org, created.id, &created.hostname).await;
        assert!(matches!(deleted, Err(ProjectError::DefaultHostname)), "{deleted:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn host_of_the_platform_is_not_a_default_hostname() {
    let kit = Kit::start().await;
    let (eu, us) = (kit.db_org("eu", Plan::Free).await, kit.db_org("us", Plan::Free).await);
    let project = kit.project(&eu, "site").await.id;
    let name: ProjectName = "api".parse().unwrap();
    let created = kit.projects.create(&kit.actor, &eu, NewProject { name: name.clone() }).await.unwrap_err();
    let renamed = kit.projects.rename(&kit.actor, &eu, project, ProjectChange { name }).await.unwrap_err();
    for error in [created, renamed] {
        assert!(matches!(&error, ProjectError::HostnameTaken(name) if name == "api-eu.svc.example"), "{error:?}");
    }
    assert_eq!(kit.audited().await, []);
    assert_eq!(kit.project(&us, "api").await.hostname, "api-us.svc.example");
}

#[test]
fn project_name_is_a_dns_label() {
    let parse = |name: &str| serde_json::from_value::<projects::NewProject>(json!({ "name": name }));
    for name in ["a", "0", "a-b", "a--b", &"x".repeat(40)] {
        assert!(parse(name).is_ok(), "{name:?}");
    }
    for name in ["", "-a", "a-", "A", "a.b", "a_b", "ä", "a\n", &"x".repeat(41)] {
        assert!(parse(name).is_err(), "{name:?}");
    }
}

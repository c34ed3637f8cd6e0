//! Creation of organizations.

use futures_util::future::join_all;
use kernel::{AbuseLimits, ApiError as _, Limits, Paging, Plan, Role};
use orgs::{InvalidNewSlug, NewOrg, NewSlug, Org, OrgError};
use serde_json::json;
use store::Connection;

use crate::kit::{Kit, audit_row, new_org, session_actor};

#[tokio::test(flavor = "multi_thread")]
async fn creator_becomes_the_first_admin() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let (actor, now) = (session_actor(ada), kit.now());
    let named = NewOrg { name: Some("Acme Inc.".parse().unwrap()), ..new_org("acme") };
    let org = kit.orgs.create(&actor, ada, named).await.unwrap();
    let expected = Org {
        id: org.id,
        slug: "acme".parse().unwrap(),
        name: "Acme Inc.".to_owned(),
        plan: Plan::Free,
        personal: false,
        role: Role::Admin,
        project_limit: 3,
        created_at: now,
    };
    assert_eq!(org, expected);
    let data = json!({ "slug": "acme", "name": "Acme Inc." });
    assert_eq!(kit.audited().await, [audit_row("org.create", &actor, org.id, org.id, data)]);

    let members = kit.orgs.members(org.id, &Paging::default()).await.unwrap();
    assert_eq!(members.next_cursor, None);
    let [admin] = members.items.as_slice() else { panic!("one member is expected: {:?}", members.items) };
    assert_eq!((admin.user_id, admin.role, admin.joined_at), (ada, Role::Admin, now));
    assert_eq!(kit.orgs.list(ada, None, &Paging::default()).await.unwrap().items, [expected]);

    let unnamed = kit.orgs.create(&actor, ada, new_org("other")).await.unwrap();
    assert_eq!(unnamed.name, "other");
}

#[tokio::test(flavor = "multi_thread")]
async fn taken_slug_is_rejected() {
    let kit = Kit::start().await;
    let (ada, bob) = (kit.db_user("ada").await, kit.db_user("bob").await);
    kit.org(ada, "acme").await;
    for user in [ada, bob] {
        let refused = kit.orgs.create(&session_actor(user), user, new_org("acme")).await.unwrap_err();
        assert!(matches!(&refused, OrgError::SlugTaken(slug) if slug == "acme"));
        assert_eq!(refused.code(), &OrgError::SLUG_TAKEN);
    }
    assert_eq!(kit.audited().await, []);
    assert_eq!(kit.db_number("SELECT count(*) FROM orgs.orgs").await, 1);
    assert_eq!(kit.db_number("SELECT count(*) FROM orgs.members").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn organizations_that_a_user_created_are_limited() {
    let kit = Kit::start().await;
    let (ada, bob) = (kit.db_user("ada").await, kit.db_user("bob").await);
    let limits = AbuseLimits { orgs_per_user: 2, ..AbuseLimits::default() };
    let orgs = kit.orgs.clone().with_abuse_limits(limits);
    kit.store
        .transaction_unaudited(async |tx: &mut Connection| orgs.create_personal(tx, ada, "ada").await)
        .await
        .unwrap();
    // An organization counts for its creator, not for its other admins.
    let others = kit.org(bob, "others").await.id;
    kit.db_join(others, &[ada], Role::Admin).await;
    let create = async |n: u32| orgs.create(&session_actor(ada), ada, new_org(&format!("acme-{n}"))).await;
    let created = join_all((0..10).map(&create)).await;
    let (created, refused): (Vec<_>, Vec<_>) = created.into_iter().partition(Result::is_ok);
    assert_eq!((created.len(), refused.len()), (2, 8));
    for refused in refused {
        let error = refused.unwrap_err();
        assert_eq!(error.code(), &OrgError::ORG_LIMIT);
        assert_eq!(error.details(), Some(json!({ "limit": 2, "count": 2 })));
    }
    orgs.create(&session_actor(bob), bob, new_org("bob")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn organization_shows_the_project_limit_of_its_plan() {
    let mut limits = Limits::default();
    (limits.free.projects, limits.pro.projects) = (2, 5);
    let kit = Kit::with(limits).await;
    let ada = kit.db_user("ada").await;
    let (free, pro) = (kit.org(ada, "free-one").await, kit.org(ada, "pro-one").await);
    kit.db_execute("UPDATE orgs.orgs SET plan = 'pro' WHERE slug = 'pro-one'").await;
    let shown = kit.orgs.memberships(ada, None).await.unwrap();
    let shown: Vec<_> = shown.iter().map(|org| (org.id, org.plan, org.project_limit)).collect();
    assert_eq!(shown, [(free.id, Plan::Free, 2), (pro.id, Plan::Pro, 5)]);
}

#[test]
fn slug_is_an_unreserved_dns_label() {
    let parse = |slug: &str| serde_json::from_value::<NewOrg>(json!({ "slug": slug })).ok();
    for slug in ["ab", "a1", "1-2", "a--b", &"x".repeat(40)] {
        assert!(parse(slug).is_some(), "{slug:?}");
    }
    for slug in ["", "a", "-a", "a-", "A1", "a_b", "a.b", "grüße", "ab\n", &"x".repeat(41)] {
        assert!(parse(slug).is_none(), "{slug:?}");
    }
    for slug in [
        "www",
        "api",
        "app",
        "admin",
        "dashboard",
        "docs",
        "mail",
        "auth",
        "login",
        "static",
        "status",
        "support",
        "svc",
    ] {
        assert_eq!(slug.parse::<NewSlug>(), Err(InvalidNewSlug::Reserved), "{slug:?}");
        assert!(parse(slug).is_none(), "{slug:?}");
    }
    for slug in ["xn--a", "xn--mnchen-3ya"] {
        assert_eq!(slug.parse::<NewSlug>(), Err(InvalidNewSlug::PunycodePrefix), "{slug:?}");
    }
    for slug in ["ab--cd", "xn-a", "a-xn--b"] {
        assert!(parse(slug).is_some(), "{slug:?}");
    }
}

#[test]
fn name_allows_unicode_and_unknown_fields_are_rejected() {
    let parse = |name: &str| serde_json::from_value::<NewOrg>(json!({ "slug": "acme", "name": name }));
    for name in ["Ä", "Müller & Söhne 工", &"ü".repeat(100)] {
        assert_eq!(parse(name).unwrap().name.unwrap().as_str(), name);
    }
    for name in ["", "a\nb", "a\u{7f}", &"x".repeat(101)] {
        assert!(parse(name).is_err(), "{name:?}");
    }
    assert!(serde_json::from_value::<NewOrg>(json!({ "slug": "acme", "plan": "pro" })).is_err());
}

//! Personal organizations.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use kernel::audit::{Actor, Event};
use kernel::{OrgId, Plan, Role, UserId};
use orgs::OrgError;
use serde_json::json;
use store::Outcome;

use crate::kit::{Kit, new_org};

/// Creates a personal organization, like a sign-in does.
async fn create_personal(kit: &Kit, user: UserId, preferred_slug: &str) -> Result<OrgId, OrgError> {
    let work = async |tx: &mut store::Connection| {
        let org = kit.orgs.create_personal(tx, user, preferred_slug).await?;
        let event = Event::of_platform("session.start", user, json!({}));
        Ok(Outcome::Changed(org, event))
    };
    kit.store.transaction(&Actor::operator("test"), work).await
}

/// Creates a personal organization and returns its slug.
async fn slug(kit: &Kit, user: UserId, preferred_slug: &str) -> String {
    let id = create_personal(kit, user, preferred_slug).await.unwrap();
    let orgs = kit.orgs.memberships(user, None).await.unwrap();
    let org = orgs.into_iter().find(|org| org.id == id).unwrap();
    assert_eq!((org.role, org.plan, org.personal), (Role::Admin, Plan::Free, true));
    assert_eq!(org.name, preferred_slug);
    org.slug.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn slug_is_derived_from_the_preferred_slug() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    kit.org(ada, "taken").await;
    let (longest, too_long, dashed) = ("x".repeat(40), "z".repeat(41), format!("{}--tail", "y".repeat(30)));
    for (preferred_slug, expected) in [
        ("ada", "ada"),
        ("ada", "ada-2"),
        ("ada", "ada-3"),
        ("taken", "taken-2"),
        // Reserved names.
        ("www", "www-2"),
        ("svc", "svc-2"),
        // Too short for a slug.
        ("a", "a-2"),
        ("a", "a-3"),
        ("Ada_Lovelace", "ada-lovelace"),
        ("Zoë", "zo"),
        ("--b--c--", "b--c"),
        ("-----", "user"),
        // The prefix of punycode is reserved.
        ("xn--zo-jia", "xn-zo-jia"),
        ("XN---_a", "xn-a"),
        ("xn--", "xn"),
        ("", "user-2"),
        ("工", "user-3"),
        // Only a slug with a suffix is truncated, without a trailing dash.
        (&longest, &longest),
        (&longest, &format!("{}-2", "x".repeat(31))),
        (&too_long, &format!("{}-2", "z".repeat(31))),
        (&dashed, &dashed),
        (&dashed, &format!("{}-2", "y".repeat(30))),
    ] {
        assert_eq!(slug(&kit, ada, preferred_slug).await, expected, "{preferred_slug:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn suffix_is_random_after_twenty_taken_slugs() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let long = "x".repeat(31);
    for n in 1..=20 {
        let numbered = if n == 1 { long.clone() } else { format!("{long}-{n}") };
        assert_eq!(slug(&kit, ada, &long).await, numbered);
    }
    let given = slug(&kit, ada, &long).await;
    let suffix = given.strip_prefix(&format!("{long}-")).unwrap();
    assert!(suffix.len() == 8 && suffix.chars().all(|c| c.is_ascii_hexdigit()), "{given}");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_users_with_one_preferred_slug_get_different_slugs() {
    let kit = Kit::start().await;
    let users = kit.db_users("user", 20).await;
    let slugs = join_all(users.iter().map(|user| slug(&kit, *user, "ada"))).await;
    let expected = (1..=20).map(|n| if n == 1 { "ada".to_owned() } else { format!("ada-{n}") });
    assert_eq!(slugs.into_iter().collect::<BTreeSet<_>>(), expected.collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_sign_in_rolls_back_its_organization() {
    let kit = Kit::start().await;
    let ada = kit.db_user("ada").await;
    let work = async |tx: &mut store::Connection| -> Result<Outcome<()>, OrgError> {
        kit.orgs.create_personal(tx, ada, "ada").await?;
        Err(OrgError::MemberNotFound)
    };
    let failed = kit.store.transaction(&Actor::operator("test"), work).await;
    assert!(matches!(failed, Err(OrgError::MemberNotFound)));
    assert_eq!(kit.orgs.memberships(ada, None).await.unwrap(), []);
    kit.orgs.create(&Actor::operator("test"), ada, new_org("ada")).await.unwrap();
}

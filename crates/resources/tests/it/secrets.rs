//! Rules of secrets.

use kernel::audit::Event;
use kernel::{ApiError as _, Paging, Plan};
use resources::{ResourceError, ResourcePart};
use serde_json::{Value, json};
use testkit::Audit;

use crate::kit::{Kit, Update, values};

#[tokio::test(flavor = "multi_thread")]
async fn each_value_is_a_new_version() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    for (version, value) in [(1, "one"), (2, "two"), (3, "two")] {
        kit.advance(1);
        let meta = kit.set(at, "API_KEY", value).await.unwrap();
        assert_eq!((meta.name.as_str(), meta.version), ("API_KEY", version));
        assert_eq!((meta.updated_at, meta.updated_by), (kit.now(), kit.user()));
        assert_eq!(kit.resources.secrets(at.project, &Paging::default()).await.unwrap().items, [meta]);
        assert_eq!(kit.environment(at).await, (version.into(), values(&[("API_KEY", value)])));
        assert_eq!(kit.node.take_updates(), [Update::Published(at.project, ResourcePart::Secrets)]);
        let event = Event::in_org("secret.set", at.org, at.project, json!({ "name": "API_KEY" }));
        assert_eq!(kit.audited().await, [Audit::of(&kit.actor, event)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_secret_begins_again_with_version_1() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    for value in ["one", "two"] {
        kit.set(at, "API_KEY", value).await.unwrap();
    }
    kit.audited().await;
    kit.delete(at, "API_KEY").await.unwrap();
    let event = Event::in_org("secret.delete", at.org, at.project, json!({ "name": "API_KEY" }));
    assert_eq!(kit.audited().await, [Audit::of(&kit.actor, event)]);
    assert_eq!(kit.environment(at).await, (3, vec![]));
    assert_eq!(kit.set(at, "API_KEY", "three").await.unwrap().version, 1);
    // The node sees a revision that only increases.
    assert_eq!(kit.environment(at).await, (4, values(&[("API_KEY", "three")])));
    assert_eq!(kit.node.take_updates().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_malformed_and_reserved_names_are_refused() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    for (name, code) in [("DB", "reserved_name"), ("SVC_TOKEN", "reserved_name"), ("a", "bad_request")] {
        let refused = kit.set(at, name, "hush").await.unwrap_err();
        assert_eq!(refused.code().name, code);
        assert!(!format!("{refused:?} {refused} {:?}", refused.details()).contains("hush"));
    }
    for name in ["API_KEY", "DB", "SVC_TOKEN", "a", "", &"A".repeat(129)] {
        let refused = kit.delete(at, name).await.unwrap_err();
        assert!(matches!(refused, ResourceError::SecretNotFound), "{name}: {refused:?}");
    }
    let refused = kit.change(at, json!({ "API_KEY": "value", "ASSETS": null })).await.unwrap_err();
    assert!(matches!(refused, ResourceError::ReservedName(_)), "{refused:?}");
    assert_eq!(kit.resources.secrets(at.project, &Paging::default()).await.unwrap().items, []);
    assert_eq!((kit.audited().await, kit.node.take_updates()), (vec![], vec![]));
    assert!(kit.load(&[at.project]).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn several_changes_are_one_revision_and_one_audit_event() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    for name in ["KEPT", "CHANGED", "DELETED"] {
        kit.set(at, name, "old").await.unwrap();
    }
    kit.audited().await;
    kit.node.take_updates();
    let changes = json!({ "CHANGED": "new", "DELETED": null, "ADDED": "new", "UNKNOWN": null });
    let all = kit.change(at, changes).await.unwrap();
    let all: Vec<(&str, i32)> = all.iter().map(|(name, version)| (name.as_str(), *version)).collect();
    assert_eq!(all, [("ADDED", 1), ("CHANGED", 2), ("KEPT", 1)]);
    assert_eq!(kit.environment(at).await, (4, values(&[("ADDED", "new"), ("CHANGED", "new"), ("KEPT", "old")])));
    assert_eq!(kit.node.take_updates(), [Update::Published(at.project, ResourcePart::Secrets)]);
    let data = json!({ "set": ["ADDED", "CHANGED"], "deleted": ["DELETED"] });
    let event = Event::in_org("secret.set", at.org, at.project, data);
    assert_eq!(kit.audited().await, [Audit::of(&kit.actor, event)]);
    // These changes change nothing.
    for changes in [json!({}), json!({ "UNKNOWN": null })] {
        assert_eq!(kit.change(at, changes).await.unwrap().len(), 3);
    }
    assert_eq!((kit.audited().await, kit.node.take_updates()), (vec![], vec![]));
    assert_eq!(kit.environment(at).await.0, 4);
    // Changes without a new value are a deletion.
    kit.change(at, json!({ "ADDED": null, "KEPT": null, "UNKNOWN": null })).await.unwrap();
    let event = Event::in_org("secret.delete", at.org, at.project, json!({ "deleted": ["ADDED", "KEPT"] }));
    assert_eq!(kit.audited().await, [Audit::of(&kit.actor, event)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn project_has_at_most_200_secrets() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    let numbered = |range: std::ops::Range<u32>| {
        let fields = range.map(|number| (format!("KEY_{number}"), json!("value")));
        Value::Object(fields.collect())
    };
    assert_eq!(kit.change(at, numbered(0..200)).await.unwrap().len(), 200);
    let refused = kit.set(at, "MORE", "value").await.unwrap_err();
    assert!(matches!(refused, ResourceError::SecretLimit { .. }), "{refused:?}");
    assert_eq!(refused.details(), Some(json!({ "limit": 200, "count": 200, "of": "secrets", "plan": Plan::Free })));
    kit.change(at, json!({ "KEY_0": null, "MORE": "value", "EVEN_MORE": "value" })).await.unwrap_err();
    // A replacement and a new version need no additional space.
    assert_eq!(kit.change(at, json!({ "KEY_0": null, "MORE": "value" })).await.unwrap().len(), 200);
    assert_eq!(kit.set(at, "KEY_1", "value").await.unwrap().version, 2);
    assert_eq!(kit.environment(at).await.1.len(), 200);
    // Another project has its own limit.
    kit.set(kit.db_project("blog").await, "MORE", "value").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn project_has_at_most_2_mib_of_secrets() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    let largest = "é".repeat(32_768);
    let filled: serde_json::Map<_, _> = (0..32).map(|number| (format!("KEY_{number}"), json!(largest))).collect();
    assert_eq!(kit.change(at, filled.into()).await.unwrap().len(), 32);
    kit.audited().await;
    for changes in [json!({ "MORE": "x" }), json!({ "KEY_0": null, "MORE": largest, "EVEN_MORE": "x" })] {
        let refused = kit.change(at, changes).await.unwrap_err();
        assert_eq!(refused.code().name, "secret_limit");
        let details = json!({ "limit": 2_097_152, "count": 2_097_152, "of": "bytes", "plan": Plan::Free });
        assert_eq!(refused.details(), Some(details));
    }
    assert_eq!((kit.audited().await, kit.environment(at).await.0), (vec![], 1));
    // A replacement and a deletion free space.
    kit.set(at, "KEY_0", &largest).await.unwrap();
    kit.change(at, json!({ "KEY_0": null, "MORE": largest })).await.unwrap();
    kit.set(at, "KEY_1", &"x".repeat(65_535)).await.unwrap();
    kit.set(at, "EVEN_MORE", "x").await.unwrap();
    kit.delete(at, "KEY_2").await.unwrap();
    kit.set(at, "KEY_2", &largest).await.unwrap();
    kit.set(at, "LAST", "x").await.unwrap_err();
    assert_eq!(kit.environment(at).await.1.iter().map(|(_, value)| value.len()).sum::<usize>(), 2_097_152);
    // Another project has its own limit.
    kit.set(kit.db_project("blog").await, "MORE", "value").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn organizations_of_a_creator_have_at_most_64_mib_of_secrets() {
    const LIMIT: i64 = 64 * 1024 * 1024;
    let kit = Kit::start().await;
    let (shop, blog) = (kit.db_project("shop").await, kit.db_project("blog").await);
    kit.db_secret(blog, "LARGE", LIMIT - 10).await;
    let is_refused = async |value: &str| {
        let refused = kit.set(shop, "MORE", value).await.unwrap_err();
        assert_eq!(refused.code().name, "secret_limit");
        assert_eq!(refused.details(), Some(json!({ "limit": LIMIT, "of": "totalBytes", "plan": Plan::Free })));
    };
    // Without a creator, the organization has the limit.
    is_refused("0123456789+").await;
    kit.set(shop, "KEY", "0123456789").await.unwrap();
    is_refused("x").await;
    kit.db_move_to_other_org(blog).await;
    is_refused("x").await;
    assert_eq!(kit.environment(shop).await, (1, values(&[("KEY", "0123456789")])));
    // A replacement of the same size and a deletion need no space.
    kit.set(shop, "KEY", "9876543210").await.unwrap();
    kit.delete(shop, "KEY").await.unwrap();
    kit.set(shop, "MORE", "x").await.unwrap();
    // A deleted project does not count.
    kit.db_delete(blog).await;
    kit.set(shop, "MORE", &"x".repeat(100)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_a_pro_organization_count_apart_from_others_of_its_creator() {
    const LIMIT: i64 = 64 * 1024 * 1024;
    let kit = Kit::start().await;
    let (shop, news, blog) = (kit.db_project("shop").await, kit.db_project("news").await, kit.db_project("blog").await);
    kit.db_secret(blog, "LARGE", LIMIT).await;
    kit.db_move_to_other_org(blog).await;
    let is_refused = async || {
        let refused = kit.set(shop, "KEY", "the longest of all values").await.unwrap_err();
        assert!(matches!(refused, ResourceError::SecretTotalLimit { .. }), "{refused}");
    };
    is_refused().await;
    kit.db_execute("UPDATE orgs.orgs SET plan = 'pro' WHERE slug = 'acme'").await;
    kit.set(shop, "KEY", "value").await.unwrap();
    // Nor do the secrets of a pro organization count for the free ones.
    kit.db_execute("UPDATE orgs.orgs SET plan = CASE slug WHEN 'acme' THEN 'free' ELSE 'pro' END").await;
    kit.set(shop, "KEY", "a longer value").await.unwrap();
    // A pro organization has a limit, too.
    kit.db_execute("UPDATE orgs.orgs SET plan = 'pro'").await;
    kit.db_secret(news, "LARGE", LIMIT).await;
    is_refused().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_loaded_exactly_and_per_project() {
    let kit = Kit::start().await;
    let (shop, blog, empty) = (kit.db_project("a").await, kit.db_project("b").await, kit.db_project("c").await);
    let texts = ["\"quoted\"", "line\nbreak\r\n\t", "emoji 🔑 é", "\\u0041", "${HOME}", " ", &"x".repeat(65_536)];
    for (number, text) in texts.iter().enumerate() {
        kit.set(shop, &format!("KEY_{number}"), text).await.unwrap();
    }
    kit.set(blog, "KEY_0", "other").await.unwrap();
    let loaded = kit.environment(shop).await.1;
    assert_eq!(loaded.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(), texts);
    let both = kit.load(&[shop.project, empty.project, blog.project]).await;
    assert!(both.len() == 2 && !both.contains_key(&empty.project));
    assert_eq!(both[&blog.project].as_ref().unwrap().values.len(), 1);
    assert!(!format!("{both:?}").contains("emoji"));
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_deleted_project_do_not_change() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    kit.set(at, "API_KEY", "value").await.unwrap();
    kit.audited().await;
    kit.db_delete(at).await;
    for refused in [
        kit.set(at, "API_KEY", "new").await.map(drop),
        kit.delete(at, "API_KEY").await,
        kit.change(at, json!({ "API_KEY": null })).await.map(drop),
    ] {
        assert!(matches!(refused, Err(ResourceError::ProjectNotFound)), "{refused:?}");
    }
    assert_eq!(kit.resources.secrets(at.project, &Paging::default()).await.unwrap().items[0].version, 1);
    assert_eq!(kit.audited().await, []);
}

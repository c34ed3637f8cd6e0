//! Who may see a project: the policy, and the key that passes by it.

use futures_util::future::join_all;
use kernel::{AccessMode, Failure as _, Plan, ProjectId, Token, TokenKind};
use projects::{AccessChange, AccessPolicy, LiveAccess, Org, ProjectError};
use serde_json::{Value, json};
use validator::Validate as _;

use crate::kit::Kit;

pub const SECRET: &str = "correct horse battery";

impl Kit {
    pub async fn set(
        &self,
        org: &Org,
        project: ProjectId,
        mode: AccessMode,
        password: Option<&str>,
    ) -> Result<AccessPolicy, ProjectError> {
        let change = AccessChange { mode, password: password.map(str::to_owned) };
        self.projects.access_set(&self.actor, org, project, change).await
    }

    /// What the node was told of the access, each time since the last look.
    fn told_access(&self) -> Vec<LiveAccess> {
        self.node.told().into_iter().map(|(_, live)| live.access).collect()
    }

    /// Every row that anything about a project could be in, as text.
    async fn everything(&self) -> String {
        let mut all = String::new();
        for table in ["projects.projects", "projects.hostnames", "projects.used_codes", "store.audit"] {
            let rows = self.database.rows(&format!("SELECT * FROM {table}")).await;
            all.push_str(&Value::Array(rows).to_string());
        }
        all
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_public_until_one_is_set() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let created = kit.now();
    let project = kit.shop(&org).await;
    let mut policy =
        AccessPolicy { mode: AccessMode::Public, has_password: false, has_bypass: false, updated_at: created };
    assert_eq!(kit.projects.access(project).await.unwrap(), policy);
    // What holds already, said again.
    assert_eq!(kit.set(&org, project, AccessMode::Public, None).await.unwrap(), policy);
    assert_eq!((kit.audited().await, kit.told_access()), (vec![], vec![]));

    let steps = [
        (AccessMode::Org, None),
        (AccessMode::Password, Some(SECRET)),
        (AccessMode::Public, None),
        (AccessMode::Password, None),
    ];
    for (version, (mode, password)) in (1..).zip(steps) {
        let (from, now) = (policy.mode, kit.now());
        policy.mode = mode;
        policy.has_password |= password.is_some();
        policy.updated_at = now;
        assert_eq!(kit.set(&org, project, mode, password).await.unwrap(), policy);
        assert_eq!(kit.projects.access(project).await.unwrap(), policy);
        assert_eq!(kit.projects.detail(&org, project).await.unwrap().access.mode, mode);
        let data = json!({ "from": from, "to": mode, "password": password.is_some() });
        assert_eq!(kit.audited().await, [kit.tells("access.set", &org, project, data)]);
        let [told] = kit.told_access().try_into().unwrap();
        assert_eq!((told.mode, told.version, told.password.is_some()), (mode, version, policy.has_password));
        // Again: an answer, and no change.
        assert_eq!(kit.set(&org, project, mode, None).await.unwrap(), policy);
        assert_eq!((kit.audited().await, kit.told_access()), (vec![], vec![]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_sets_a_policy_and_a_failure_sets_nothing() {
    let kit = Kit::start().await;
    let (org, other) = (kit.db_org("acme", Plan::Free).await, kit.db_org("other", Plan::Free).await);
    let project = kit.shop(&org).await;
    let nowhere = kit.store.world().id();
    for (org, project) in [(&other, project), (&org, nowhere)] {
        let refused = kit.set(org, project, AccessMode::Org, None).await;
        assert!(matches!(refused, Err(ProjectError::NotFound)), "{refused:?}");
        let refused = kit.projects.access_bypass_new(&kit.actor, org, project).await;
        assert!(matches!(refused, Err(ProjectError::NotFound)), "{refused:?}");
        let refused = kit.projects.access_bypass_revoke(&kit.actor, org, project).await;
        assert!(matches!(refused, Err(ProjectError::NotFound)), "{refused:?}");
    }
    let before = kit.projects.access(project).await.unwrap();
    kit.node.fail(2);
    let failed = kit.set(&org, project, AccessMode::Org, None).await;
    assert!(matches!(failed, Err(ProjectError::Store(_))), "{failed:?}");
    let failed = kit.projects.access_bypass_new(&kit.actor, &org, project).await;
    assert!(matches!(failed, Err(ProjectError::Store(_))), "{failed:?}");
    assert_eq!((kit.projects.access(project).await.unwrap(), kit.audited().await), (before, vec![]));
    assert!(matches!(kit.projects.access(nowhere).await, Err(ProjectError::NotFound)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_kept_as_a_hash_alone() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.shop(&org).await;
    let refused = kit.set(&org, project, AccessMode::Password, None).await.unwrap_err();
    assert!(matches!(&refused, ProjectError::Field(it) if it.path == "password"), "{refused:?}");
    assert_eq!(refused.code(), &kernel::Code::BAD_REQUEST);
    assert_eq!((kit.audited().await, kit.told_access()), (vec![], vec![]));

    kit.set(&org, project, AccessMode::Password, Some(SECRET)).await.unwrap();
    // The same one again is another salt; what was let in before it is let in no longer.
    kit.set(&org, project, AccessMode::Password, Some(SECRET)).await.unwrap();
    kit.set(&org, project, AccessMode::Password, Some("something else")).await.unwrap();
    // Left out, it stays; it may come before the mode that uses it.
    kit.set(&org, project, AccessMode::Org, None).await.unwrap();
    kit.set(&org, project, AccessMode::Org, Some("for later on")).await.unwrap();
    kit.set(&org, project, AccessMode::Password, None).await.unwrap();
    let told = kit.told_access();
    assert!(told.iter().map(|access| access.version).eq(1..=6), "{told:?}");
    let hashes: Vec<&str> = told.iter().map(|access| access.password.as_deref().unwrap()).collect();
    for hash in &hashes {
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$") && hash.split('$').count() == 6, "{hash}");
    }
    assert_eq!((hashes[2], hashes[4]), (hashes[3], hashes[5]));
    assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[3] != hashes[4]);

    let everything = kit.everything().await;
    assert!(everything.contains("access.set") && everything.contains(hashes[5]));
    let replaced = hashes[..4].iter().any(|hash| everything.contains(hash));
    let plain = [SECRET, "something else", "for later on"].iter().any(|text| everything.contains(text));
    assert!(!replaced && !plain, "{everything}");
    let change = AccessChange { mode: AccessMode::Password, password: Some(SECRET.to_owned()) };
    assert!(!format!("{change:?}{change:#?}").contains(SECRET));
}

#[test]
fn a_password_has_eight_to_128_characters() {
    let accepts = |body: Value| serde_json::from_value::<AccessChange>(body).is_ok_and(|it| it.validate().is_ok());
    for password in ["x".repeat(8), "x".repeat(128), "ä".repeat(128)] {
        assert!(accepts(json!({ "mode": "password", "password": password })), "{password}");
    }
    assert!(accepts(json!({ "mode": "org" })) && accepts(json!({ "mode": "password", "password": null })));
    for password in [String::new(), "x".repeat(7), "ä".repeat(7), "x".repeat(129)] {
        assert!(!accepts(json!({ "mode": "password", "password": password })), "{password}");
    }
    for body in [json!({}), json!({ "mode": "Public" }), json!({ "mode": "org", "users": [] })] {
        assert!(!accepts(body.clone()), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bypass_key_is_shown_once_and_replaced_and_revoked() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.shop(&org).await;
    kit.set(&org, project, AccessMode::Org, None).await.unwrap();
    kit.audited().await;
    let before = kit.told_access().remove(0);
    // None to revoke: no change.
    kit.projects.access_bypass_revoke(&kit.actor, &org, project).await.unwrap();
    assert_eq!((kit.audited().await, kit.told_access()), (vec![], vec![]));

    let mut keys = Vec::new();
    for _ in 0..2 {
        let now = kit.now();
        let bypass = kit.projects.access_bypass_new(&kit.actor, &org, project).await.unwrap();
        assert_eq!(bypass.created_at, now);
        let secret = bypass.secret.reveal().to_owned();
        let hash = Token::parse(TokenKind::Bypass, &secret).unwrap().hash();
        assert_eq!(kit.audited().await, [kit.tells("access.bypass.new", &org, project, json!({}))]);
        // One hash at the node: the key before opens nothing any more. The policy is what it was.
        assert_eq!(kit.told_access(), [LiveAccess { bypass: Some(hash), ..before.clone() }]);
        let policy = kit.projects.access(project).await.unwrap();
        assert_eq!((policy.mode, policy.has_bypass, policy.updated_at), (AccessMode::Org, true, now));
        let everything = kit.everything().await;
        assert!(!everything.contains(&secret) && everything.contains(&hash.hex()), "{everything}");
        assert!(!format!("{bypass:?}").contains(&secret));
        keys.push((secret, hash.hex()));
    }
    assert_ne!(keys[0], keys[1]);
    assert!(!kit.everything().await.contains(&keys[0].1));
    // It stays with a change of the policy.
    kit.set(&org, project, AccessMode::Public, None).await.unwrap();
    let [told] = kit.told_access().try_into().unwrap();
    assert_eq!((told.bypass.unwrap().hex(), told.version), (keys[1].1.clone(), before.version + 1));
    kit.audited().await;

    kit.projects.access_bypass_revoke(&kit.actor, &org, project).await.unwrap();
    assert_eq!(kit.audited().await, [kit.tells("access.bypass.revoke", &org, project, json!({}))]);
    assert!(kit.told_access().iter().all(|access| access.bypass.is_none()));
    let policy = kit.projects.access(project).await.unwrap();
    assert_eq!((policy.mode, policy.has_bypass), (AccessMode::Public, false));
    kit.projects.access_bypass_revoke(&kit.actor, &org, project).await.unwrap();
    assert_eq!((kit.audited().await, kit.told_access()), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_at_once_are_told_in_the_order_they_took_effect() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.shop(&org).await;
    let changes = (0..20).map(async |n| match n % 3 {
        0 => drop(kit.set(&org, project, AccessMode::Org, None).await.unwrap()),
        1 => drop(kit.set(&org, project, AccessMode::Public, None).await.unwrap()),
        _ => drop(kit.projects.access_bypass_new(&kit.actor, &org, project).await.unwrap()),
    });
    join_all(changes).await;
    let told = kit.told_access();
    assert_eq!(kit.audited().await.len(), told.len());
    assert!(told.is_sorted_by_key(|access| access.version), "{told:?}");
    kit.deploy(&org, project, "again").await.unwrap();
    assert_eq!(kit.told_access(), [told.last().unwrap().clone()]);
}

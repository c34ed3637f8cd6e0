//! Access policies and bypass keys.

use futures_util::future::join_all;
use kernel::{AccessMode, ApiError as _, Plan, ProjectId, Token, TokenKind};
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

    /// Returns the access policy of each node update since the last call.
    fn take_access_updates(&self) -> Vec<LiveAccess> {
        self.node.take_updates().into_iter().map(|(_, live)| live.access).collect()
    }

    /// Returns all rows that could contain project data, as text.
    async fn dump_rows(&self) -> String {
        let mut all = String::new();
        for table in ["projects.projects", "projects.hostnames", "projects.used_access_codes", "store.audit"] {
            let rows = self.database.rows(&format!("SELECT * FROM {table}")).await;
            all.push_str(&Value::Array(rows).to_string());
        }
        all
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_is_public_until_it_is_set() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let created = kit.now();
    let project = kit.live_project(&org).await;
    let mut policy =
        AccessPolicy { mode: AccessMode::Public, has_password: false, has_bypass: false, updated_at: created };
    assert_eq!(kit.projects.access(project).await.unwrap(), policy);
    // Setting the current policy is a no-op.
    assert_eq!(kit.set(&org, project, AccessMode::Public, None).await.unwrap(), policy);
    assert_eq!((kit.audited().await, kit.take_access_updates()), (vec![], vec![]));

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
        assert_eq!(kit.audited().await, [kit.audit_row("access.set", &org, project, data)]);
        let [update] = kit.take_access_updates().try_into().unwrap();
        assert_eq!((update.mode, update.version, update.password.is_some()), (mode, version, policy.has_password));
        // Setting it again is a no-op.
        assert_eq!(kit.set(&org, project, mode, None).await.unwrap(), policy);
        assert_eq!((kit.audited().await, kit.take_access_updates()), (vec![], vec![]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_projects_and_failures_change_no_policy() {
    let kit = Kit::start().await;
    let (org, other) = (kit.db_org("acme", Plan::Free).await, kit.db_org("other", Plan::Free).await);
    let project = kit.live_project(&org).await;
    let unknown = kit.store.clock_rng().id();
    for (org, project) in [(&other, project), (&org, unknown)] {
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
    assert!(matches!(kit.projects.access(unknown).await, Err(ProjectError::NotFound)));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_password_hash_is_stored() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.live_project(&org).await;
    let refused = kit.set(&org, project, AccessMode::Password, None).await.unwrap_err();
    assert!(matches!(&refused, ProjectError::Field(it) if it.path == "password"), "{refused:?}");
    assert_eq!(refused.code(), &kernel::Code::BAD_REQUEST);
    assert_eq!((kit.audited().await, kit.take_access_updates()), (vec![], vec![]));

    kit.set(&org, project, AccessMode::Password, Some(SECRET)).await.unwrap();
    // Setting the same password again creates a new salt and a new version, which invalidates earlier access.
    kit.set(&org, project, AccessMode::Password, Some(SECRET)).await.unwrap();
    kit.set(&org, project, AccessMode::Password, Some("something else")).await.unwrap();
    // A change without a password keeps the current one. A password can be set before the mode that uses it.
    kit.set(&org, project, AccessMode::Org, None).await.unwrap();
    kit.set(&org, project, AccessMode::Org, Some("for later on")).await.unwrap();
    kit.set(&org, project, AccessMode::Password, None).await.unwrap();
    let updates = kit.take_access_updates();
    assert!(updates.iter().map(|access| access.version).eq(1..=6), "{updates:?}");
    let hashes: Vec<&str> = updates.iter().map(|access| access.password.as_deref().unwrap()).collect();
    for hash in &hashes {
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$") && hash.split('$').count() == 6, "{hash}");
    }
    assert_eq!((hashes[2], hashes[4]), (hashes[3], hashes[5]));
    assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[3] != hashes[4]);

    let rows = kit.dump_rows().await;
    assert!(rows.contains("access.set") && rows.contains(hashes[5]));
    let replaced = hashes[..4].iter().any(|hash| rows.contains(hash));
    let plain_text = [SECRET, "something else", "for later on"].iter().any(|text| rows.contains(text));
    assert!(!replaced && !plain_text, "{rows}");
    let change = AccessChange { mode: AccessMode::Password, password: Some(SECRET.to_owned()) };
    assert!(!format!("{change:?}{change:#?}").contains(SECRET));
}

#[test]
fn password_has_8_to_128_characters() {
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
async fn bypass_key_is_returned_once_replaced_and_revoked() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.live_project(&org).await;
    kit.set(&org, project, AccessMode::Org, None).await.unwrap();
    kit.audited().await;
    let before = kit.take_access_updates().remove(0);
    // Revoking without a key is a no-op.
    kit.projects.access_bypass_revoke(&kit.actor, &org, project).await.unwrap();
    assert_eq!((kit.audited().await, kit.take_access_updates()), (vec![], vec![]));

    let mut keys = Vec::new();
    for _ in 0..2 {
        let now = kit.now();
        let bypass = kit.projects.access_bypass_new(&kit.actor, &org, project).await.unwrap();
        assert_eq!(bypass.created_at, now);
        let secret = bypass.secret.reveal().to_owned();
        let hash = Token::parse(TokenKind::Bypass, &secret).unwrap().hash();
        assert_eq!(kit.audited().await, [kit.audit_row("access.bypass.new", &org, project, json!({}))]);
        // The node has only the new hash. The policy is unchanged.
        assert_eq!(kit.take_access_updates(), [LiveAccess { bypass: Some(hash), ..before.clone() }]);
        let policy = kit.projects.access(project).await.unwrap();
        assert_eq!((policy.mode, policy.has_bypass, policy.updated_at), (AccessMode::Org, true, now));
        let rows = kit.dump_rows().await;
        assert!(!rows.contains(&secret) && rows.contains(&hash.hex()), "{rows}");
        assert!(!format!("{bypass:?}").contains(&secret));
        keys.push((secret, hash.hex()));
    }
    assert_ne!(keys[0], keys[1]);
    assert!(!kit.dump_rows().await.contains(&keys[0].1));
    // The key is kept when the policy changes.
    kit.set(&org, project, AccessMode::Public, None).await.unwrap();
    let [update] = kit.take_access_updates().try_into().unwrap();
    assert_eq!((update.bypass.unwrap().hex(), update.version), (keys[1].1.clone(), before.version + 1));
    kit.audited().await;

    kit.projects.access_bypass_revoke(&kit.actor, &org, project).await.unwrap();
    assert_eq!(kit.audited().await, [kit.audit_row("access.bypass.revoke", &org, project, json!({}))]);
    assert!(kit.take_access_updates().iter().all(|access| access.bypass.is_none()));
    let policy = kit.projects.access(project).await.unwrap();
    assert_eq!((policy.mode, policy.has_bypass), (AccessMode::Public, false));
    kit.projects.access_bypass_revoke(&kit.actor, &org, project).await.unwrap();
    assert_eq!((kit.audited().await, kit.take_access_updates()), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_changes_update_the_node_in_order() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.live_project(&org).await;
    let changes = (0..20).map(async |n| match n % 3 {
        0 => drop(kit.set(&org, project, AccessMode::Org, None).await.unwrap()),
        1 => drop(kit.set(&org, project, AccessMode::Public, None).await.unwrap()),
        _ => drop(kit.projects.access_bypass_new(&kit.actor, &org, project).await.unwrap()),
    });
    join_all(changes).await;
    let updates = kit.take_access_updates();
    assert_eq!(kit.audited().await.len(), updates.len());
    assert!(updates.is_sorted_by_key(|access| access.version), "{updates:?}");
    kit.deploy(&org, project, "again").await.unwrap();
    assert_eq!(kit.take_access_updates(), [updates.last().unwrap().clone()]);
}

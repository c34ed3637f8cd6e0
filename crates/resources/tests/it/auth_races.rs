//! Concurrent changes of app user auth.

use futures_util::future::join_all;
use resources::{AuthProvider, ResourceError, ResourcePart};
use serde_json::json;
use testkit::four_at_a_time;

use crate::kit::{Kit, Update};

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_grants_are_one() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    kit.db_database(at).await;
    let granted = four_at_a_time((0..20).map(|_| kit.resources.auth_grant(&kit.actor, at))).await;
    assert!(granted.iter().all(|status| status.as_ref().is_ok_and(|status| status.granted)), "{granted:?}");
    assert_eq!((kit.audited().await.len(), kit.auth_part(at).await.unwrap().number), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_changes_and_revocations_neither_deadlock_nor_publish_a_revoked_grant() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    kit.db_database(at).await;
    for round in 1..=5 {
        let grants = join_all((0..4).map(|_| kit.resources.auth_grant(&kit.actor, at)));
        let revocations = join_all((0..4).map(|_| kit.resources.auth_revoke(&kit.actor, at)));
        let patches = join_all((1..5).map(|days| kit.change_auth(at, json!({ "sessionDays": round * 10 + days }))));
        let secrets = ["a", "b", "c", "d"];
        let providers = join_all(secrets.map(|secret| kit.set_provider(at, "codehost", "id", secret)));
        let deletions =
            join_all((0..2).map(|_| kit.resources.auth_provider_delete(&kit.actor, at, AuthProvider::Codehost)));
        let (granted, revoked, patched, set, deleted) =
            tokio::join!(grants, revocations, patches, providers, deletions);
        assert!(granted.iter().all(Result::is_ok) && revoked.iter().all(Result::is_ok), "{granted:?} {revoked:?}");
        assert!(deleted.iter().all(Result::is_ok), "{deleted:?}");
        for changed in patched.iter().chain(&set) {
            assert!(matches!(changed, Ok(_) | Err(ResourceError::AuthNotGranted)), "{changed:?}");
        }
        // The last update of the desired state agrees with the grant.
        let is_granted = kit.resources.auth(at.project).await.unwrap().granted;
        let last = kit.node.take_updates().pop().unwrap();
        let expected = match is_granted {
            true => Update::Published(at.project, ResourcePart::Auth),
            false => Update::Withdrawn(at.project, ResourcePart::Auth),
        };
        assert_eq!((last, kit.auth_part(at).await.is_some()), (expected, is_granted));
        kit.resources.auth_revoke(&kit.actor, at).await.unwrap();
        kit.node.take_updates();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_patches_of_different_fields_are_all_kept() {
    let kit = Kit::start().await;
    let at = kit.signing_in("shop").await;
    let patches = [
        json!({ "sessionDays": 7 }),
        json!({ "brandName": "Shop" }),
        json!({ "brandColor": "#0a7cff" }),
        json!({ "brandLogoUrl": "https://shop.example" }),
    ];
    let changed = join_all(patches.iter().map(|patch| kit.change_auth(at, patch.clone()))).await;
    assert!(changed.iter().all(Result::is_ok));
    let settings = serde_json::to_value(kit.resources.auth(at.project).await.unwrap().settings).unwrap();
    for patch in patches {
        for (field, value) in patch.as_object().unwrap() {
            assert_eq!(&settings[field], value);
        }
    }
    assert_eq!(kit.audited().await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_settings_of_a_provider_leave_one_client_and_one_registration() {
    let kit = Kit::start().await;
    let at = kit.signing_in("shop").await;
    let pairs: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    let set = join_all(pairs.iter().map(|pair| kit.set_provider(at, "codehost", pair, pair))).await;
    assert!(set.iter().all(Result::is_ok), "{set:?}");
    let clients = kit.auth_part(at).await.unwrap().clients;
    assert_eq!((clients.len(), clients[0].registration), (1, 1));
    assert_eq!(clients[0].client_id.as_str(), clients[0].client_secret.reveal());
    assert_eq!(kit.audited().await.len(), 10);
}

//! App user auth: the grant, the settings and the providers.

use kernel::ApiError as _;
use kernel::audit::Event;
use resources::{AuthProvider, AuthSettings, ResourceError, ResourcePart, Target};
use serde_json::{Value, json};
use testkit::Audit;

use crate::kit::{Kit, Update};

impl Kit {
    /// Asserts that there was one change since the last call: with this audit event, and an update of the part for the
    /// node if `is_published`.
    async fn assert_changed(&self, at: Target, name: &'static str, data: Value, is_published: bool) {
        let event = Event::in_org(name, at.org, at.project, data);
        assert_eq!(self.audited().await, [Audit::of(&self.actor, event)]);
        let published = vec![Update::Published(at.project, ResourcePart::Auth)];
        assert_eq!(self.node.take_updates(), if is_published { published } else { vec![] });
    }

    async fn assert_unchanged(&self) {
        assert_eq!((self.audited().await, self.node.take_updates()), (vec![], vec![]));
    }

    async fn delete_provider(&self, at: Target, provider: &str) -> Result<(), ResourceError> {
        self.resources.auth_provider_delete(&self.actor, at, provider.parse().unwrap()).await
    }

    /// Returns the provider, the registration, the id and the secret of each client, as the node receives them.
    async fn clients(&self, at: Target) -> Vec<(AuthProvider, i64, String, String)> {
        let part = self.auth_part(at).await.unwrap();
        let clients = part.clients.into_iter().map(|client| {
            let secret = client.client_secret.reveal().to_owned();
            (client.provider, client.registration, client.client_id.to_string(), secret)
        });
        clients.collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grant_needs_a_database_and_a_project() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    let refused = kit.resources.auth_grant(&kit.actor, at).await.unwrap_err();
    assert_eq!(refused.code().name, "database_required");
    kit.assert_unchanged().await;
    assert_eq!(kit.db_number("SELECT count(*) FROM resources.auth").await, 0);
    kit.db_delete(at).await;
    let refused = kit.resources.auth_grant(&kit.actor, at).await.unwrap_err();
    assert!(matches!(refused, ResourceError::ProjectNotFound), "{refused:?}");
    kit.db_database(at).await;
    let refused = kit.resources.auth_grant(&kit.actor, at).await.unwrap_err();
    assert!(matches!(refused, ResourceError::ProjectNotFound), "{refused:?}");
    kit.assert_unchanged().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_and_providers_stay_between_grants_whose_number_increases() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    kit.db_database(at).await;
    let never = kit.resources.auth(at.project).await.unwrap();
    assert_eq!((never.granted, &never.settings, never.providers.len()), (false, &AuthSettings::default(), 0));
    kit.resources.auth_revoke(&kit.actor, at).await.unwrap();
    kit.assert_unchanged().await;
    assert_eq!(kit.auth_part(at).await, None);
    for number in 1..=3 {
        let granted = kit.resources.auth_grant(&kit.actor, at).await.unwrap();
        kit.assert_changed(at, "auth.grant", json!({}), true).await;
        assert_eq!(kit.resources.auth_grant(&kit.actor, at).await.unwrap(), granted);
        kit.assert_unchanged().await;
        assert_eq!(kit.resources.auth(at.project).await.unwrap(), granted);
        if number == 1 {
            assert_eq!(granted.settings, AuthSettings::default());
            kit.set_provider(at, "codehost", "id", "secret").await.unwrap();
            kit.change_auth(at, json!({ "sessionDays": 7, "brandName": "Shop" })).await.unwrap();
            kit.audited().await;
            kit.node.take_updates();
        } else {
            assert_eq!((granted.settings.session_days, granted.providers.len()), (7, 1));
        }
        assert_eq!(kit.auth_part(at).await.unwrap().number, number);
        let before = kit.resources.auth(at.project).await.unwrap();
        kit.resources.auth_revoke(&kit.actor, at).await.unwrap();
        assert_eq!(kit.node.take_updates(), [Update::Withdrawn(at.project, ResourcePart::Auth)]);
        assert_eq!(kit.audited().await.len(), 1);
        kit.resources.auth_revoke(&kit.actor, at).await.unwrap();
        kit.assert_unchanged().await;
        assert_eq!(kit.auth_part(at).await, None);
        let after = kit.resources.auth(at.project).await.unwrap();
        assert_eq!(after, resources::AuthStatus { granted: false, ..before });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn change_of_settings_is_partial_and_audited() {
    let kit = Kit::start().await;
    let at = kit.signing_in("shop").await;
    let all = json!({
        "sessionDays": 90, "brandName": "Shop", "brandColor": "#0A7CFF", "brandLogoUrl": "https://shop.example/logo.svg",
    });
    let set = kit.change_auth(at, all.clone()).await.unwrap();
    assert_eq!(serde_json::to_value(&set.settings).unwrap(), all);
    kit.assert_changed(at, "auth.settings", all.clone(), true).await;
    for nothing in [json!({}), json!({ "sessionDays": 90 }), all] {
        assert_eq!(kit.change_auth(at, nothing).await.unwrap(), set);
        kit.assert_unchanged().await;
    }
    let one = json!({ "brandColor": null, "brandName": "Shop" });
    let changed = kit.change_auth(at, one).await.unwrap();
    assert_eq!(changed.settings, AuthSettings { brand_color: None, ..set.settings });
    kit.assert_changed(at, "auth.settings", json!({ "brandColor": null }), true).await;
    assert_eq!(kit.auth_part(at).await.unwrap().settings, changed.settings);
    assert_eq!(kit.resources.auth(at.project).await.unwrap(), changed);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_and_providers_change_only_while_granted() {
    let kit = Kit::start().await;
    let (never, revoked) = (kit.db_project("blog").await, kit.signing_in("shop").await);
    kit.set_provider(revoked, "codehost", "id", "secret").await.unwrap();
    kit.resources.auth_revoke(&kit.actor, revoked).await.unwrap();
    kit.audited().await;
    kit.node.take_updates();
    for at in [never, revoked] {
        for refused in [
            kit.change_auth(at, json!({ "sessionDays": 7 })).await,
            kit.change_auth(at, json!({})).await,
            kit.set_provider(at, "codehost", "id", "secret").await,
        ] {
            assert_eq!(refused.unwrap_err().code().name, "not_granted");
        }
    }
    kit.assert_unchanged().await;
    // A registered provider can be deleted, but the node has nothing to update.
    for at in [never, revoked] {
        kit.delete_provider(at, "messenger").await.unwrap();
    }
    kit.assert_unchanged().await;
    kit.delete_provider(revoked, "codehost").await.unwrap();
    kit.assert_changed(revoked, "auth.provider.delete", json!({ "provider": "codehost" }), false).await;
    assert_eq!(kit.resources.auth(revoked.project).await.unwrap().providers, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_is_set_idempotently_and_keeps_its_registration() {
    use AuthProvider::{Codehost, Messenger, Webaccount};
    let kit = Kit::start().await;
    let at = kit.signing_in("shop").await;
    for (provider, id) in [("messenger", "m"), ("codehost", "one"), ("webaccount", "w")] {
        kit.set_provider(at, provider, id, "secret").await.unwrap();
        kit.assert_changed(at, "auth.provider.set", json!({ "provider": provider, "clientId": id }), true).await;
    }
    let client =
        |provider, registration, id: &str, secret: &str| (provider, registration, id.to_owned(), secret.to_owned());
    let shown = async || {
        let providers = kit.resources.auth(at.project).await.unwrap().providers;
        providers.into_iter().map(|it| (it.provider, it.client_id.to_string())).collect::<Vec<_>>()
    };
    let mut clients = kit.clients(at).await;
    clients.sort();
    let others = [client(Webaccount, 3, "w", "secret"), client(Messenger, 1, "m", "secret")];
    assert_eq!(clients, [&[client(Codehost, 2, "one", "secret")], &others[..]].concat());
    assert_eq!(shown().await, [(Codehost, "one".into()), (Webaccount, "w".into()), (Messenger, "m".into())]);
    kit.set_provider(at, "codehost", "one", "secret").await.unwrap();
    kit.assert_unchanged().await;
    // A new secret or id replaces the client, and keeps the registration.
    for (id, secret) in [("one", "rotated"), ("two", "rotated")] {
        kit.set_provider(at, "codehost", id, secret).await.unwrap();
        kit.assert_changed(at, "auth.provider.set", json!({ "provider": "codehost", "clientId": id }), true).await;
        assert!(kit.clients(at).await.contains(&client(Codehost, 2, id, secret)));
    }
    for repeated in [false, true] {
        kit.delete_provider(at, "codehost").await.unwrap();
        if repeated {
            kit.assert_unchanged().await;
        } else {
            kit.assert_changed(at, "auth.provider.delete", json!({ "provider": "codehost" }), true).await;
        }
    }
    // Nodes recognize registrations that are newer than their state by the revision, which a deletion keeps.
    let revision = async || kit.auth_part(at).await.unwrap().provider_revision;
    assert_eq!(revision().await, 5);
    kit.set_provider(at, "codehost", "two", "rotated").await.unwrap();
    assert!(kit.clients(at).await.contains(&client(Codehost, 6, "two", "rotated")));
    assert_eq!(revision().await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_clients_are_refused() {
    let kit = Kit::start().await;
    let at = kit.signing_in("shop").await;
    for (id, secret) in [("", "hush"), ("id", "")] {
        let refused = kit.set_provider(at, "codehost", id, secret).await.unwrap_err();
        assert_eq!(refused.code().name, "invalid_provider");
        assert!(!format!("{refused:?} {refused}").contains("hush"));
    }
    kit.assert_unchanged().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_receives_only_granted_projects() {
    let kit = Kit::start().await;
    let [one, two, revoked] = [kit.signing_in("a").await, kit.signing_in("b").await, kit.signing_in("c").await];
    let never = kit.db_project("d").await;
    for at in [one, revoked] {
        kit.set_provider(at, "codehost", "id", "secret").await.unwrap();
        kit.set_provider(at, "webaccount", "id", "secret").await.unwrap();
    }
    kit.resources.auth_revoke(&kit.actor, revoked).await.unwrap();
    let loaded = kit.load_auth(&[one.project, two.project, revoked.project, never.project]).await;
    let counts: Vec<_> = loaded.iter().map(|(project, it)| (*project, it.as_ref().unwrap().clients.len())).collect();
    let mut expected = vec![(one.project, 2), (two.project, 0)];
    expected.sort();
    assert_eq!(counts, expected);
    assert!(!format!("{loaded:?}").contains("secret\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_are_the_active_names_with_the_default_first() {
    let kit = Kit::start().await;
    let at = kit.signing_in("shop").await;
    for (name, kind, state) in [
        ("a.example", "custom", "active"),
        ("shop-acme.localhost", "default", "active"),
        ("b.example", "custom", "pending_dns"),
    ] {
        kit.db_execute(&format!(
            "INSERT INTO projects.hostnames (name, project_id, kind, state, created_at) \
             VALUES ('{name}', '{}', '{kind}', '{state}', now())",
            at.project.as_uuid()
        ))
        .await;
    }
    assert_eq!(kit.resources.auth(at.project).await.unwrap().hosts, ["shop-acme.localhost", "a.example"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn auth_of_deleted_project_does_not_change() {
    let kit = Kit::start().await;
    let at = kit.signing_in("shop").await;
    kit.set_provider(at, "codehost", "id", "secret").await.unwrap();
    kit.audited().await;
    kit.db_delete(at).await;
    for refused in [
        kit.change_auth(at, json!({ "sessionDays": 7 })).await.map(drop),
        kit.set_provider(at, "codehost", "other", "secret").await.map(drop),
        kit.delete_provider(at, "codehost").await,
    ] {
        assert!(matches!(refused, Err(ResourceError::ProjectNotFound)), "{refused:?}");
    }
    assert_eq!(kit.audited().await, []);
}

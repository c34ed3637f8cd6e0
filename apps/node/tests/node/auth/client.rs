//! The clients of projects at the providers of the sandbox.

use protocol::{AuthProviderKind, SecretValue};
use sandbox::{IdentityProvider, Person};

use super::{Rig, user_id};

use IdentityProvider::{CodeHost, Messenger, WebAccount};

/// Signs a person in, and returns the id of the user.
async fn sign_in(rig: &Rig, person: &str) -> String {
    let mut browser = rig.browser().await;
    let response = browser.sign_in(WebAccount, person, "/").await;
    assert_eq!(response.status, 303, "{}", response.body);
    user_id(&mut browser).await
}

/// Replaces the client of the project at the provider.
async fn replace_client(rig: &Rig) {
    let client = rig.identity.register(WebAccount, &["http://app.localhost/__svc/auth/callback/webaccount"]);
    let mut auth = rig.auth(&IdentityProvider::ALL);
    let webaccount = auth.providers.iter_mut().find(|it| it.provider == AuthProviderKind::Webaccount).unwrap();
    webaccount.client_id = client.client_id;
    webaccount.client_secret = SecretValue::new(client.client_secret);
    auth.provider_revision = 2;
    rig.apply_auth(&auth).await;
}

/// A subject that stays the same with the new client shows that the subjects of the provider are public. So another
/// subject with the address of a user belongs to another person, even if the user has not signed in again.
#[tokio::test(flavor = "multi_thread")]
async fn reassigned_address_is_recognized_after_the_client_of_a_provider_is_replaced() {
    let Some(rig) = Rig::start().await else { return };
    let (ada, grace) = (sign_in(&rig, "ada").await, sign_in(&rig, "grace").await);
    replace_client(&rig).await;
    assert_eq!(sign_in(&rig, "grace").await, grace);
    rig.identity.add_person(WebAccount, Person::new("other-ada", "10").verified("ada@mail.example"));
    assert_ne!(sign_in(&rig, "other-ada").await, ada);
    assert_eq!(sign_in(&rig, "ada").await, ada);
}

/// A provider with pairwise subjects states another subject after a project has replaced its client.
#[tokio::test(flavor = "multi_thread")]
async fn users_stay_when_the_client_of_a_provider_is_replaced() {
    let Some(rig) = Rig::start().await else { return };
    let sign_in = async |person: &str| sign_in(&rig, person).await;
    let (ada, grace) = (sign_in("ada").await, sign_in("grace").await);
    replace_client(&rig).await;
    rig.identity.add_person(WebAccount, Person::new("ada-pairwise", "9").verified("ada@mail.example"));
    assert_eq!(sign_in("ada-pairwise").await, ada);
    // A subject that stays the same belongs to the same user.
    assert_eq!(sign_in("grace").await, grace);
    // While the client stays the same, another account with the address belongs to another person.
    for (key, subject, user) in [("ada", "10", &ada), ("grace", "11", &grace)] {
        let other = Person::new(&format!("other-{key}"), subject).verified(&format!("{key}@mail.example"));
        rig.identity.add_person(WebAccount, other);
        assert_ne!(&sign_in(&format!("other-{key}")).await, user);
    }
    assert_eq!([sign_in("ada-pairwise").await, sign_in("ada").await], [ada.clone(), ada]);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_authenticates_in_the_way_that_the_operator_sets() {
    let settings = ["CODEHOST", "WEBACCOUNT"].map(|provider| format!("SVC_NODE_AUTH_{provider}_AUTH_METHOD"));
    let Some(rig) = Rig::start_with(&settings.each_ref().map(|name| (name.as_str(), "basic")), &[]).await else {
        return;
    };
    let mut browser = rig.browser().await;
    for provider in [CodeHost, WebAccount] {
        assert_eq!(browser.sign_in(provider, "ada", "/").await.status, 502, "{provider:?}");
        rig.identity.require_basic(provider);
        assert_eq!(browser.sign_in(provider, "ada", "/").await.status, 303, "{provider:?}");
    }
    assert_eq!(browser.sign_in(Messenger, "ada", "/").await.status, 303);
    rig.identity.require_basic(Messenger);
    assert_eq!(browser.sign_in(Messenger, "ada", "/").await.status, 502);
}

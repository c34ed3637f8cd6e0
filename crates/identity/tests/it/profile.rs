//! Profile updates at sign-in.

use identity::{IdentityRepository as _, SignIn};
use kernel::{Provider, UserId};
use serde_json::json;

use crate::kit::{Kit, anonymous_actor, dev_login};

const PROFILE: &str = "SELECT name, email, avatar_url, created_at FROM identity.users";

#[tokio::test(flavor = "multi_thread")]
async fn development_login_updates_only_the_given_fields() {
    let kit = Kit::start().await;
    let created = kit.db_rows("SELECT to_timestamp(1795255200) AS at").await[0]["at"].clone();
    for (email, name, stored_email, stored_name) in [
        (None, None, None, None),
        (Some("ada@example.org"), None, Some("ada@example.org"), None),
        (None, Some("Ada"), Some("ada@example.org"), Some("Ada")),
        (None, None, Some("ada@example.org"), Some("Ada")),
        (Some("a@example.org"), Some("Ada L."), Some("a@example.org"), Some("Ada L.")),
    ] {
        kit.identity.dev_login(&anonymous_actor(), dev_login("ada", email, name), None).await.unwrap();
        let expected = json!({ "name": stored_name, "email": stored_email, "avatar_url": null, "created_at": created });
        assert_eq!(kit.db_rows(PROFILE).await, [expected]);
        // `audited` also advances the clock, so that later sign-ins have another time.
        kit.audited().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_and_subject_identify_the_user() {
    let kit = Kit::start().await;
    let here = SignIn {
        provider: Provider::Codehost,
        subject: "ada".to_owned(),
        name: Some("Ada".to_owned()),
        email: None,
        avatar_url: Some("https://pictures.example/1".to_owned()),
    };
    let moved = SignIn { avatar_url: Some("https://pictures.example/2".to_owned()), ..here.clone() };
    let silent = SignIn { name: None, avatar_url: None, ..here.clone() };
    let elsewhere = SignIn { provider: Provider::Dev, ..here.clone() };
    let (one, two, three): (UserId, UserId, UserId) =
        (kit.store.clock_rng().id(), kit.store.clock_rng().id(), kit.store.clock_rng().id());
    let (now, mut connection) = (kit.now(), kit.connection().await);

    let first = connection.user_upsert(one, &here, now).await.unwrap();
    assert_eq!((first.id, first.provider, first.subject.as_str()), (one, Provider::Codehost, "ada"));
    assert_eq!((first.name.as_deref(), first.email.as_deref(), first.created_at), (Some("Ada"), None, now));
    let again = connection.user_upsert(two, &moved, now.plus_seconds(60)).await.unwrap();
    assert_eq!(again.avatar_url, moved.avatar_url);
    assert_eq!(identity::Profile { avatar_url: here.avatar_url.clone(), ..again }, first);
    // The code host removes fields that it no longer sends; the development login keeps fields that are not set.
    let cleared = connection.user_upsert(two, &silent, now).await.unwrap();
    assert_eq!((cleared.id, cleared.name, cleared.avatar_url), (one, None, None));
    let other = connection.user_upsert(three, &elsewhere, now).await.unwrap();
    assert_eq!((other.id, other.provider), (three, Provider::Dev));
    let quiet = SignIn { provider: Provider::Dev, ..silent };
    assert_eq!(connection.user_upsert(two, &quiet, now).await.unwrap(), other);
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_log_has_no_address_and_no_name() {
    let kit = Kit::start().await;
    for _ in 0..2 {
        let login = dev_login("ada", Some("lovelace@example.org"), Some("Countess"));
        kit.identity.dev_login(&anonymous_actor(), login, Some("Firefox of lovelace@example.org")).await.unwrap();
    }
    let events = kit.db_rows("SELECT a::text FROM store.audit a").await;
    assert_eq!(events.len(), 2);
    for contact in ["@", "lovelace", "Countess"] {
        assert!(events.iter().all(|row| !row.to_string().contains(contact)), "{events:?}");
    }
}

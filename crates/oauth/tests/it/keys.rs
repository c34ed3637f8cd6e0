//! Signing keys of several processes.

use futures_util::future::join_all;
use oauth::{OAuthError, RejectedToken, SigningKeys};

use crate::kit::{Kit, operator};

#[tokio::test]
async fn servers_that_start_together_create_one_key() {
    let kit = Kit::start().await;
    let servers: Vec<SigningKeys> = (0..8).map(|_| kit.another_server().keys().clone()).collect();
    let actor = operator();
    for result in join_all(servers.iter().map(|keys| keys.ensure(&actor))).await {
        result.unwrap();
    }
    assert_eq!(kit.db_number("SELECT count(*) FROM oauth.signing_keys").await, 1);
}

#[tokio::test]
async fn rotation_publishes_before_it_signs_and_retires_after_the_last_token() {
    let kit = Kit::start().await;
    let keys = kit.oauth.keys();
    let tokens = kit.sign_in().await;
    let old = keys.get().await.unwrap().current(kit.now()).unwrap().id;
    keys.rotate(&operator()).await.unwrap();
    let pending = keys.rotate(&operator()).await.unwrap_err();
    assert!(matches!(pending, OAuthError::RotationInProgress(_)), "{pending}");
    let set = keys.load().await.unwrap();
    assert_eq!((set.published(kit.now()).count(), set.current(kit.now()).unwrap().id), (2, old));

    kit.advance(119);
    assert_eq!(set.current(kit.now()).unwrap().id, old);
    let last = kit.refresh(&tokens).await.unwrap();
    kit.advance(1);
    assert_ne!(set.current(kit.now()).unwrap().id, old);
    // The last token of the old key stays valid until it expires.
    kit.advance(898);
    assert!(kit.oauth.verify(last.access_token.reveal()).await.is_ok());
    kit.advance(1);
    assert!(kit.oauth.verify(last.access_token.reveal()).await.is_err());
    keys.purge(&operator()).await.unwrap();
    assert_eq!(kit.db_number("SELECT count(*) FROM oauth.signing_keys").await, 2);
    kit.advance(61);
    keys.purge(&operator()).await.unwrap();
    assert_eq!(kit.db_number("SELECT count(*) FROM oauth.signing_keys").await, 1);
}

#[tokio::test]
async fn retired_key_is_replaced_at_once_and_its_tokens_are_rejected() {
    let kit = Kit::start().await;
    let tokens = kit.sign_in().await;
    let (keys, other) = (kit.oauth.keys(), kit.another_server());
    other.keys().load().await.unwrap();
    let old = keys.get().await.unwrap().current(kit.now()).unwrap().id;
    keys.retire(&operator(), old).await.unwrap();
    assert!(matches!(keys.retire(&operator(), old).await, Err(OAuthError::KeyNotFound)));
    keys.load().await.unwrap();
    assert!(kit.oauth.verify(tokens.access_token.reveal()).await.is_err());
    let refreshed = kit.refresh(&tokens).await.unwrap();
    assert!(kit.oauth.verify(refreshed.access_token.reveal()).await.is_ok());
    // Another process still caches the retired key. It loads the keys because it does not know the new one.
    other.verify(refreshed.access_token.reveal()).await.unwrap();
    assert!(other.verify(tokens.access_token.reveal()).await.is_err());
}

#[tokio::test]
async fn clock_that_was_set_back_does_not_interrupt_sign_in() {
    let kit = Kit::start().await;
    kit.sign_in().await;
    kit.advance(-24 * 3600);
    let tokens = kit.sign_in().await;
    kit.oauth.verify(tokens.access_token.reveal()).await.unwrap();
    kit.refresh(&tokens).await.unwrap();
    assert_eq!(kit.db_number("SELECT count(*) FROM oauth.signing_keys").await, 1);
    // The key that signs is replaced, although it would sign only later.
    let keys = kit.oauth.keys();
    let old = keys.get().await.unwrap().current(kit.now()).unwrap().id;
    keys.retire(&operator(), old).await.unwrap();
    keys.load().await.unwrap();
    kit.oauth.verify(kit.sign_in().await.access_token.reveal()).await.unwrap();
}

#[tokio::test]
async fn process_that_has_not_loaded_the_keys_verifies_its_first_token() {
    let kit = Kit::start().await;
    let tokens = kit.sign_in().await;
    let verified = kit.another_server().verify(tokens.access_token.reveal()).await.unwrap();
    assert_eq!((verified.user, verified.client), (kit.user, kit.client.id()));
    // If the keys cannot be loaded, the token is not rejected as invalid.
    let cut_off = kit.another_server();
    kit.db_execute("ALTER TABLE oauth.signing_keys RENAME TO hidden").await;
    let error = cut_off.verify(tokens.access_token.reveal()).await.unwrap_err();
    assert!(matches!(error, RejectedToken::Keys(_)), "{error}");
    kit.db_execute("ALTER TABLE oauth.hidden RENAME TO signing_keys").await;
    cut_off.verify(tokens.access_token.reveal()).await.unwrap();
}

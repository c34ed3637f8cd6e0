//! The limit of grants.

use crate::kit::Kit;

#[tokio::test]
async fn new_grant_above_the_limit_ends_the_one_that_was_used_least_recently() {
    let kit = Kit::start().await;
    let oldest = kit.sign_in().await;
    kit.advance(1);
    let second = kit.sign_in().await;
    for _ in 0..98 {
        kit.advance(1);
        kit.sign_in().await;
    }
    assert_eq!(kit.grants().await, 100);
    kit.advance(1);
    let oldest = kit.refresh(&oldest).await.unwrap();
    kit.advance(1);
    kit.audited().await;
    kit.sign_in().await;
    assert_eq!(kit.grants().await, 100);
    let [event] = &kit.audited().await[..] else { panic!("one event") };
    assert_eq!((event.event.as_str(), event.data["ended"].as_array().unwrap().len()), ("oauth.grant.create", 1));
    kit.refresh(&second).await.unwrap_err();
    kit.refresh(&oldest).await.unwrap();
    // The model-lending service receives a message about the end.
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox WHERE topic = 'oauth.revocation'").await, 1);
    // A new grant is kept even if the clock was set back, so that all others are more recent.
    kit.advance(-3600);
    let new = kit.sign_in().await;
    assert_eq!(kit.grants().await, 100);
    kit.refresh(&new).await.unwrap();
}

//! The hourly limit.

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use kernel::NamedProject;
use mail::{MailDirection, Notice, Refusal};

use crate::kit::{Kit, outgoing};

#[tokio::test(flavor = "multi_thread")]
async fn of_60_concurrent_mails_exactly_50_are_accepted() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    // The pool has 32 connections.
    let submitted = stream::iter(0..60).map(|_| kit.submit(shop, outgoing(&["ada@example.org"]))).buffer_unordered(20);
    let results: Vec<_> = submitted.collect().await;
    let refused: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert_eq!(refused, [&Refusal::RateLimited { limit: 50 }; 10]);
    assert_eq!(kit.count(shop, MailDirection::Out).await, 50);
    assert_eq!(kit.db_number("SELECT count(*) FROM store.outbox").await, 50);
    let status = kit.mail.status(shop).await.unwrap();
    assert_eq!((status.hourly_limit, status.sent_last_hour, status.sent_last24h), (50, 50, 50));
    let project = NamedProject { id: shop.project, name: "shop".to_owned() };
    assert_eq!(kit.notices.take(), [(shop.org, Notice::EmailLimit { project, per_hour: 50 })]);
    // Another project has its own limit.
    let blog = kit.project("blog").await;
    kit.submit(blog, outgoing(&["ada@example.org"])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_covers_the_last_hour() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    for minute in 0..50 {
        kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
        assert_eq!(kit.mail.status(shop).await.unwrap().sent_last_hour, minute + 1);
        kit.advance(60);
    }
    kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap_err();
    kit.advance(600);
    // The first mail is now an hour old.
    kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap_err();
    kit.advance(3600);
    let status = kit.mail.status(shop).await.unwrap();
    assert_eq!((status.sent_last_hour, status.sent_last24h), (0, 51));
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_above_the_limit_is_refused_before_it_is_checked() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    for _ in 0..50 {
        kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    }
    // The message would be refused for its recipient, if the call got that far.
    let refused = async || kit.submit(shop, outgoing(&["not an address"])).await.unwrap_err();
    assert_eq!(refused().await, Refusal::RateLimited { limit: 50 });
    kit.advance(1800);
    assert_eq!(refused().await, Refusal::RateLimited { limit: 50 });
    assert_eq!(kit.notices.take().len(), 1, "one notification in an hour");
    kit.advance(1800);
    assert!(matches!(refused().await, Refusal::InvalidRecipient(_)));
    for _ in 0..50 {
        kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    }
    refused().await;
    assert_eq!(kit.notices.take().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_submissions_with_one_id_are_one_mail() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    for _ in 0..49 {
        kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    }
    // Only one more mail is allowed in this hour.
    let id = kit.new_id();
    let results = join_all((0..10).map(|_| kit.submit_as(id, shop, outgoing(&["ada@example.org"])))).await;
    assert_eq!(results, vec![Ok(()); 10]);
    assert_eq!((kit.count(shop, MailDirection::Out).await, kit.objects()), (50, 50));
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_submission_counts_once_even_at_the_limit() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let id = kit.new_id();
    join_all((0..5).map(|_| kit.submit_as(id, shop, outgoing(&["ada@example.org"])))).await;
    for _ in 1..50 {
        kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    }
    kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap_err();
    kit.submit_as(id, shop, outgoing(&["ada@example.org"])).await.unwrap();
    kit.relay().await;
    assert_eq!(kit.relay.sent().len(), 50);
    // The id belongs to the other project.
    let blog = kit.project("blog").await;
    let taken = kit.submit_as(id, blog, outgoing(&["ada@example.org"])).await.unwrap_err();
    assert!(matches!(taken, Refusal::InvalidMessage(_)), "{taken:?}");
}

//! The log and its status.

use kernel::{Page, Paging};
use mail::{MailDirection, MailError, MailLogEntry};

use crate::kit::{Kit, outgoing};

#[tokio::test(flavor = "multi_thread")]
async fn pages_contain_each_mail_once_newest_first() {
    let kit = Kit::start().await;
    let (shop, blog) = (kit.project("shop").await, kit.project("blog").await);
    let mut sent = Vec::new();
    for minute in 0..25 {
        // Two mails per minute belong to another project or have another direction.
        kit.receive(blog, "eve@example.org").await;
        if minute % 5 == 0 {
            kit.receive(shop, "eve@example.org").await;
        }
        sent.push(kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap());
        kit.advance(60);
    }
    sent.reverse();
    for (direction, expected) in [(None, 30), (Some(MailDirection::Out), 25), (Some(MailDirection::In), 5)] {
        let mut seen: Vec<MailLogEntry> = Vec::new();
        let mut paging = Paging { limit: 4, after: None };
        loop {
            let Page { items, next_cursor } = kit.mail.log(shop.project, direction, &paging).await.unwrap();
            seen.extend(items);
            let Some(cursor) = next_cursor else { break };
            paging = Paging::after(4, &cursor).unwrap();
        }
        assert_eq!(seen.len(), expected, "{direction:?}");
        assert!(seen.windows(2).all(|pair| pair[0].id > pair[1].id));
        let out: Vec<_> = seen.iter().filter(|it| it.direction == MailDirection::Out).map(|it| it.id).collect();
        assert!(direction == Some(MailDirection::In) || out == sent);
    }
    let status = kit.mail.status(shop).await.unwrap();
    assert_eq!((status.sent_last24h, status.received_last24h), (25, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_counts_a_limited_number_of_received_mails() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    kit.db_execute(&format!(
        "INSERT INTO mail.messages (id, project_id, direction, sender, recipients, outcome, size_bytes, stored_bytes,
                 spf, has_raw, created_at)
             SELECT gen_random_uuid(), '{}', 'in', '', '{{}}', 'received', 0, 0, 'none', false, '{}'
             FROM generate_series(1, 100001)",
        shop.project.as_uuid(),
        kit.now()
    ))
    .await;
    kit.submit(shop, outgoing(&["ada@example.org"])).await.unwrap();
    let status = kit.mail.status(shop).await.unwrap();
    assert_eq!((status.sent_last_hour, status.sent_last24h, status.received_last24h), (1, 1, 100_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_the_address_before_and_after_the_grant() {
    let kit = Kit::start().await;
    let shop = kit.ungranted("shop").await;
    let shown = async || {
        let status = kit.mail.status(shop).await.unwrap();
        (status.granted, status.address, status.from)
    };
    let address = |granted, name: &str| {
        let address = format!("{name}.acme.mail.example");
        (granted, address.clone(), format!("noreply@{address}"))
    };
    assert_eq!(shown().await, address(false, "shop"));
    kit.grant(shop, "shop").await;
    kit.db_execute("UPDATE projects.projects SET name = 'store'").await;
    assert_eq!(shown().await, address(true, "shop"));
    kit.revoke(shop).await;
    assert_eq!(shown().await, address(false, "store"));
    let status = kit.mail.status(shop).await.unwrap();
    assert_eq!((status.hourly_limit, status.keep_days), (50, 30));
}

#[tokio::test(flavor = "multi_thread")]
async fn log_stays_readable_after_the_grant_is_revoked() {
    let kit = Kit::start().await;
    let (shop, blog) = (kit.project("shop").await, kit.project("blog").await);
    let id = kit.send(shop, &["ada@example.org"]).await;
    kit.revoke(shop).await;
    assert_eq!(kit.entry(shop, id).await.outcome.to_string(), "sent");
    assert!(kit.mail.raw(shop.project, id).await.is_ok());
    // Another project does not see the mail.
    assert!(matches!(kit.mail.entry(blog.project, id).await, Err(MailError::MailNotFound)));
    assert!(matches!(kit.mail.raw(blog.project, id).await, Err(MailError::MailNotFound)));
    assert!(matches!(kit.mail.entry(shop.project, kit.new_id()).await, Err(MailError::MailNotFound)));
    assert_eq!(kit.mail.log(blog.project, None, &Paging::default()).await.unwrap().items, []);
}

//! Claims while many organizations have messages, or organizations have many.

use std::collections::BTreeSet;

use kernel::OrgId;
use serde_json::json;
use store::Connection;

use super::kit::{Arrival, Kit, Receiver, TOPIC};

impl Kit {
    /// Enqueues messages of this many organizations. The key of a message is the number of its organization.
    async fn enqueue_for_orgs(&self, orgs: usize, messages: usize) {
        let payload = json!({});
        let enqueue = async |tx: &mut Connection| {
            for org in 0..orgs {
                let id: OrgId = self.store.clock_rng().id();
                for _ in 0..messages {
                    self.store.enqueue_for(tx, TOPIC, id, &org.to_string(), &payload).await?;
                }
            }
            Ok(())
        };
        self.change(enqueue).await.unwrap();
    }

    /// Enqueues 200 due messages of an organization, messages of 150 others that wait for retries, and an older due
    /// message of another one.
    async fn enqueue_among_waiting_ones(&self) {
        // The ids of organizations contain their times of creation.
        self.enqueue_for_orgs(1, 200).await;
        self.clock.advance(1);
        self.enqueue_for_orgs(150, 1).await;
        self.database
            .run(
                "UPDATE store.outbox SET next_attempt_at = 'infinity'
                 WHERE created_at > (SELECT min(created_at) FROM store.outbox)",
            )
            .await;
        self.clock.advance(1);
        self.enqueue_for_orgs(1, 1).await;
        self.database
            .run(
                "UPDATE store.outbox SET key = 'older', next_attempt_at = created_at - interval '1 hour'
                 WHERE created_at = (SELECT max(created_at) FROM store.outbox)",
            )
            .await;
    }

    /// Wakes up all workers again and again.
    async fn wake_repeatedly(&self) {
        loop {
            self.advance(0).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_reads_a_limited_number_of_messages() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    kit.enqueue_for_orgs(2000, 1).await;
    kit.database.run("ANALYZE store.outbox").await;
    let worker = kit.store.spawn_outbox_worker(receiver.clone());
    let mut held: Vec<Arrival> = Vec::new();
    for _ in 0..8 {
        held.push(receiver.next().await);
    }
    for _ in 0..8 {
        held.remove(0).accept();
        held.push(receiver.next().await);
    }
    let accept_all = async {
        for arrival in held {
            arrival.accept();
        }
    };
    let ((), ()) = tokio::join!(worker.stop(), accept_all);
    // Postgres updates the statistics when a connection closes.
    let Kit { store, database, .. } = kit;
    drop(store);
    database.wait_for_end_of_sessions("test").await;
    let fetched = "SELECT coalesce(sum(idx_tup_fetch), 0) FROM pg_stat_user_tables WHERE relname = 'outbox'";
    let fetched = database.number(fetched).await;
    // Nine claims.
    assert!((16..9 * 500).contains(&fetched), "{fetched} rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_organization_has_its_turn_before_any_has_another() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    kit.enqueue_for_orgs(100, 2).await;
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    let (mut held, mut served) = (Vec::<Arrival>::new(), BTreeSet::new());
    for n in 0..100 {
        if n >= 8 {
            held.remove(0).accept();
        }
        let arrival = receiver.next().await;
        assert!(served.insert(arrival.message.key.clone()), "{} was served before", arrival.message.key);
        held.push(arrival);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn organization_at_its_limit_leaves_slots_to_others() {
    let (kit, receiver) = (Kit::start().await, Receiver::with_tenant_limit(3));
    kit.enqueue_for_orgs(2, 9).await;
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    let mut held: Vec<Arrival> = Vec::new();
    for _ in 0..6 {
        held.push(receiver.next().await);
    }
    assert_eq!(held.iter().filter(|arrival| arrival.message.key == "0").count(), 3);
    // Two slots are free.
    kit.enqueue("other").await;
    receiver.accept_next("other").await;
    kit.wait_for_rows(6, "store.outbox WHERE attempts > 0").await;
    for _ in 0..10 {
        let ended = held.remove(0).accept();
        let next = receiver.next().await;
        assert_eq!(next.message.key, ended.key);
        held.push(next);
    }
}

/// Tests claims of many due messages while another organization has many messages that wait for a retry.
#[tokio::test(flavor = "multi_thread")]
async fn claim_does_not_read_the_messages_that_wait_for_a_retry() {
    const FILL: &str = "
        ALTER TABLE store.outbox SET (autovacuum_enabled = false);
        INSERT INTO store.outbox (id, topic, tenant_id, key, payload, key_id, attempts, next_attempt_at, created_at)
            SELECT gen_random_uuid(), 'mail', '00000000-0000-0000-0000-000000000001', '', '', '', 1, 'infinity', now()
            FROM generate_series(1, 50000)";
    // Only claims read these indexes.
    const BLOCKS: &str = "SELECT sum(idx_blks_hit + idx_blks_read) FROM pg_statio_user_indexes
        WHERE indexrelname IN ('outbox_topic_tenant_id_next_attempt_at_idx', 'outbox_topic_next_attempt_at_idx')";
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    kit.database.run(FILL).await;
    kit.database.close_sessions().await;
    let before = kit.database.number(BLOCKS).await;
    kit.enqueue_for_orgs(1, 200).await;
    let worker = kit.store.spawn_outbox_worker(receiver.clone());
    for _ in 0..200 {
        receiver.next().await.accept();
    }
    worker.stop().await;
    let Kit { store, database, .. } = kit;
    drop(store);
    database.wait_for_end_of_sessions("test").await;
    let read = database.number(BLOCKS).await - before;
    // There are 25 to 200 claims, of about 20 blocks each. The waiting messages have more than 600.
    assert!((200..10_000).contains(&read), "{read} blocks");
}

/// Tests claims while one organization has many due messages, another an older one, and the others wait for retries.
#[tokio::test(flavor = "multi_thread")]
async fn organization_among_many_waiting_ones_has_its_turn() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    kit.enqueue_among_waiting_ones().await;
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    for delivered in 0.. {
        assert!(delivered < 50, "the older message waits for the others");
        if receiver.next().await.accept().key == "older" {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn organization_at_its_limit_does_not_hide_others_among_many_waiting_ones() {
    let (kit, receiver) = (Kit::start().await, Receiver::with_tenant_limit(4));
    kit.enqueue_among_waiting_ones().await;
    let _worker = kit.store.spawn_outbox_worker(receiver.clone());
    let mut held: Vec<Arrival> = Vec::new();
    for _ in 0..4 {
        held.push(receiver.next().await);
    }
    tokio::select! {
        _ = receiver.accept_next("older") => {}
        () = kit.wake_repeatedly() => {}
    }
}

//! Claims while many organizations have due messages.

use std::collections::BTreeSet;
use std::time::Instant;

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
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_reads_a_limited_number_of_messages() {
    let (kit, receiver) = (Kit::start().await, Receiver::new());
    kit.enqueue_for_orgs(2000, 1).await;
    kit.database.run("ANALYZE store.outbox").await;
    let began = Instant::now();
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
    // Nine claims, and a count of all messages each 15 seconds.
    let counts = 1 + i64::try_from(began.elapsed().as_secs() / 15).unwrap();
    assert!((16..9 * 500 + counts * 2000).contains(&fetched), "{fetched} rows");
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

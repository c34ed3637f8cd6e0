//! A randomized model of the ledger: concurrent credits, calls, and repeated and lost settlements.

use std::sync::atomic::{AtomicI64, Ordering};

use futures_util::future::join_all;
use kernel::{Limits, OrgId, ProjectId};
use testkit::random_id;

use crate::kit::{Kit, order};

const ROUNDS: u64 = 100;
const TASKS: u64 = 10;
const OPERATIONS: u64 = 10;

struct Account {
    org: OrgId,
    projects: Vec<ProjectId>,
    /// The expected balance after the round.
    balance: AtomicI64,
    calls: AtomicI64,
}

/// A small deterministic generator (SplitMix64), so that a failed run can be repeated.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// Runs 10,000 operations in rounds of ten concurrent tasks. After each round, checks every row of the ledger, and
/// compares each balance with the one that the model computes.
#[tokio::test(flavor = "multi_thread")]
async fn ledger_sums_to_the_balance_after_every_step() {
    let mut limits = Limits::default();
    limits.free.ai_requests_per_minute = u32::MAX;
    limits.free.ai_spend_per_day_micro_cents = i64::MAX;
    let kit = Kit::with(limits).await;
    let mut accounts = Vec::new();
    for slug in ["one", "two", "three"] {
        let (org, first) = kit.customer(slug, 100_000).await;
        let projects = vec![first, kit.project(org, "blog").await];
        accounts.push(Account { org, projects, balance: AtomicI64::new(100_000_000_000), calls: AtomicI64::new(0) });
    }
    for round in 0..ROUNDS {
        join_all((0..TASKS).map(|task| operate(&kit, &accounts, round * TASKS + task))).await;
        if round % 10 == 0 {
            // The open calls of the previous rounds are lost now.
            kit.clock.advance(16 * 60);
            kit.billing.end_lost_calls().await.unwrap();
        }
        kit.assert_consistent().await;
        for account in &accounts {
            let lost = format!(
                "SELECT coalesce(sum(-amount_micro_cents), 0)::bigint FROM billing.ledger WHERE estimated AND org_id = '{}'",
                account.org.as_uuid()
            );
            let lost = kit.database.number(&lost).await;
            assert_eq!(kit.balance(account.org).await, account.balance.load(Ordering::Relaxed) - lost, "round {round}");
        }
    }
    let calls: i64 = accounts.iter().map(|account| account.calls.load(Ordering::Relaxed)).sum();
    let settled = "SELECT count(*) FROM billing.ledger WHERE kind = 'call' AND NOT estimated";
    assert_eq!(kit.database.number(settled).await, calls);
    assert!(kit.database.number("SELECT count(*) FROM billing.ledger WHERE estimated").await > 100);
}

async fn operate(kit: &Kit, accounts: &[Account], seed: u64) {
    let mut numbers = Numbers(seed);
    for operation in 0..OPERATIONS {
        let account = &accounts[usize::try_from(numbers.below(3)).unwrap()];
        let project = account.projects[usize::try_from(numbers.below(2)).unwrap()];
        let (input, output) = (i64::try_from(numbers.below(900)).unwrap(), i64::try_from(numbers.below(900)).unwrap());
        let id = random_id();
        match numbers.below(10) {
            // An order that arrives under two webhook ids.
            0 => {
                let order = order(account.org, &format!("order_{seed}_{operation}"), input + 1);
                let ids = [0, 1].map(|copy| format!("msg_{seed}_{operation}_{copy}"));
                let (first, second) = tokio::join!(kit.deliver_as(&ids[0], &order), kit.deliver_as(&ids[1], &order));
                first.and(second).unwrap();
                account.balance.fetch_add((input + 1) * 1_000_000, Ordering::Relaxed);
            }
            // A call that its node never settles.
            1 => {
                kit.admit(project, id).await.unwrap();
            }
            // A free call.
            2 => {
                kit.admit(project, id).await.unwrap();
                assert!(kit.billing.settle_call(kit.node, id, None).await.unwrap());
                assert!(!kit.settle(id, input, output).await);
            }
            // A call that is settled concurrently.
            3 => {
                kit.admit(project, id).await.unwrap();
                let settled = tokio::join!(kit.settle(id, input, output), kit.settle(id, input, output));
                assert!(settled.0 ^ settled.1);
                account.deduct(input, output);
            }
            _ => {
                kit.admit(project, id).await.unwrap();
                assert!(kit.settle(id, input, output).await);
                account.deduct(input, output);
            }
        }
    }
}

impl Account {
    fn deduct(&self, input: i64, output: i64) {
        self.balance.fetch_sub(input * 6 + output * 24, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

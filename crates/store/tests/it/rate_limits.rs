//! Token buckets in Postgres.

use std::time::Duration;

use futures_util::future::join_all;
use store::Quota;
use testkit::TestStore;

const HOUR: Quota = Quota { permits: 60, period: Duration::from_secs(3600) };

#[tokio::test]
async fn bucket_holds_its_permits_and_refills_in_its_period() {
    let kit = TestStore::start().await;
    let take = async |permits| kit.store.permits_take("a", HOUR, permits).await.unwrap();
    assert_eq!((take(0).await, take(57).await), (None, None));
    // All or none: three are left, and the fourth is free after a minute.
    assert_eq!(take(4).await, Some(Duration::from_secs(60)));
    assert_eq!((take(3).await, take(0).await), (None, Some(Duration::from_secs(60))));
    assert_eq!(take(1).await, Some(Duration::from_secs(60)));
    assert_eq!(kit.store.permits_take("b", HOUR, 60).await.unwrap(), None, "another bucket");
    kit.clock.advance(59);
    assert_eq!(take(1).await, Some(Duration::from_secs(1)));
    kit.clock.advance(1);
    assert_eq!(take(1).await, None);
    kit.clock.advance(10_000);
    assert_eq!(take(60).await, None);
    assert_eq!(take(1).await, Some(Duration::from_secs(60)));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_processes_take_no_permit_twice() {
    let kit = TestStore::start().await;
    let waits = join_all((0..100).map(|_| kit.store.permits_take("a", HOUR, 1))).await;
    assert_eq!(waits.into_iter().filter(|wait| wait.as_ref().unwrap().is_none()).count(), 60);
}

#[tokio::test]
async fn bucket_is_valid_for_a_process_with_another_clock() {
    let kit = TestStore::start().await;
    for ahead in [24 * 3600, -24 * 3600] {
        let (key, other) = (ahead.to_string(), kit.with_clock_ahead(ahead));
        assert_eq!(other.permits_take(&key, HOUR, 30).await.unwrap(), None);
        assert_eq!(kit.store.permits_take(&key, HOUR, 29).await.unwrap(), None);
        assert!(other.permits_take(&key, HOUR, 2).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn limit_holds_in_any_hour_or_day() {
    let kit = TestStore::start().await;
    let quotas = [0, 1, 2, 3, 10].map(|limit| {
        [(limit, 3600, Quota::at_most_per_hour(limit)), (limit, 24 * 3600, Quota::at_most_per_day(limit))]
    });
    for (limit, period, quota) in quotas.into_iter().flatten() {
        let (mut granted, mut elapsed) = (0, 0);
        while elapsed < period {
            match kit.store.permits_take(&format!("{period} {limit}"), quota, 1).await.unwrap() {
                None => granted += 1,
                Some(wait) => {
                    let seconds = i64::try_from(wait.as_secs()).unwrap();
                    kit.clock.advance(seconds);
                    elapsed += seconds;
                }
            }
        }
        assert!(granted <= limit && granted >= limit.saturating_sub(1), "{granted} of {limit}");
    }
}

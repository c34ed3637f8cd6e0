//! The purge of rate limits.

use std::time::Duration;

use gateway::{Limiters, RateLimits};
use store::Quota;
use testkit::TestStore;

#[tokio::test]
async fn process_with_a_fast_clock_purges_only_full_buckets() {
    let kit = TestStore::start().await;
    let quota = Quota { permits: 1, period: Duration::from_secs(200) };
    let take = async || kit.store.permits_take("a", quota, 1).await.unwrap();
    assert_eq!(take().await, None);
    let other = kit.with_clock_ahead(240);
    let limiters = Limiters::new(RateLimits::default(), other.clock_rng().clone());
    limiters.purge_idle(&other).await.unwrap();
    assert_eq!(take().await, Some(quota.period));
    kit.advance(201);
    limiters.purge_idle(&other).await.unwrap();
    assert_eq!(kit.db_number("SELECT count(*) FROM store.rate_limits").await, 0);
}

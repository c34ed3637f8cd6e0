//! The share of each organization in the rate limit of the registrar.

use domains::{DomainCheck, DomainError, DomainLock, DomainRenewal, Domains};
use kernel::{ApiError as _, Code, OrgId};

use crate::kit::{Kit, actor, purchase};

const NAME: &str = "a.example";

async fn check(domains: &Domains, org: OrgId) -> Result<(), DomainError> {
    domains.check(org, DomainCheck { names: vec!["b.example".to_owned()] }).await.map(drop)
}

/// Asserts that the request is rejected, and returns the seconds after which it can be repeated.
#[track_caller]
fn retry_after<T: std::fmt::Debug>(result: Result<T, DomainError>) -> i64 {
    let error = result.unwrap_err();
    assert_eq!(error.code(), &Code::RATE_LIMITED);
    error.retry_after().unwrap()
}

#[tokio::test]
async fn organization_cannot_use_the_requests_of_others() {
    let kit = Kit::start().await;
    // Two servers share the organization's bucket, which has a capacity of ten requests.
    let [one, two] = [20, 20].map(|requests| kit.with_requests_per_org(requests));
    one.purchase(&actor(), kit.org, purchase(NAME)).await.unwrap();
    two.renew(&actor(), kit.org, NAME, DomainRenewal { years: 1 }).await.unwrap();
    one.set_lock(&actor(), kit.org, NAME, DomainLock { locked: false }).await.unwrap();
    two.auth_code(&actor(), kit.org, NAME).await.unwrap();
    one.sync(&actor(), kit.org, NAME).await.unwrap();
    check(&two, kit.org).await.unwrap();
    let calls = kit.world.state().calls.len();
    // One request remains, which is too few for a purchase.
    assert_eq!(retry_after(one.purchase(&actor(), kit.org, purchase("b.example")).await), 721);
    check(&one, kit.org).await.unwrap();
    assert_eq!(retry_after(check(&two, kit.org).await), 361);
    retry_after(two.renew(&actor(), kit.org, NAME, DomainRenewal { years: 1 }).await);
    retry_after(two.set_lock(&actor(), kit.org, NAME, DomainLock { locked: true }).await);
    retry_after(two.auth_code(&actor(), kit.org, NAME).await);
    retry_after(two.sync(&actor(), kit.org, NAME).await);
    assert_eq!(kit.world.state().calls.len(), calls + 1);
    assert_eq!(kit.state("b.example").await, None);
    // Operations that do not call the registrar are not counted.
    two.set_lock(&actor(), kit.org, NAME, DomainLock { locked: false }).await.unwrap();
    two.purchase(&actor(), kit.org, purchase(NAME)).await.unwrap();
    two.get(kit.org, NAME).await.unwrap();
    check(&two, kit.org().await).await.unwrap();
    kit.advance(361);
    check(&one, kit.org).await.unwrap();
}

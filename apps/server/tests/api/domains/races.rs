//! Concurrent purchases.

use futures_util::future::join_all;
use sandbox::RegistrarOperation;

use super::{COM_CENTS, DOMAINS, Kit, purchase};
use crate::billing::org_id;

#[tokio::test(flavor = "multi_thread")]
async fn twenty_requests_of_one_organization_buy_once() {
    let kit = Kit::start().await;
    let another = kit.app.another().await;
    let callers = [kit.ada.clone(), another.connect(&kit.ada)];
    let requests = (0..20).map(|number| {
        let caller = callers[number % 2].clone();
        async move { caller.post(DOMAINS, purchase("shop.com")).await }
    });
    let mut statuses: Vec<u16> = join_all(requests).await.iter().map(|response| response.status).collect();
    statuses.sort_unstable();
    statuses.dedup();
    // A request that gets no permit or exceeds its time limit fails, and can be repeated.
    assert!(statuses.iter().all(|status| [200, 201, 502, 503].contains(status)), "{statuses:?}");
    let again = kit.buy("shop.com").await;
    assert!([200, 201].contains(&again.status), "{}", again.body);
    kit.assert_bought("shop.com").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_organizations_race_for_a_name() {
    let kit = Kit::start().await;
    let grace = kit.app.sign_in("grace").await;
    let grace_org = org_id(&grace).await.as_str().unwrap().to_owned();
    kit.payments.set_card(&grace_org, false);
    for number in 0..3 {
        let name = format!("race-{number}.com");
        let paid = || (kit.payments.net_cents(&kit.org), kit.payments.net_cents(&grace_org));
        let before = paid();
        let (one, other) = tokio::join!(kit.buy(&name), grace.post("/v1/orgs/grace/domains", purchase(&name)));
        let (loser, expected) = match (one.status, other.status) {
            (201, _) => (other, (before.0 + COM_CENTS, before.1)),
            (_, 201) => (one, (before.0, before.1 + COM_CENTS)),
            statuses => panic!("{statuses:?}: {} {}", one.body, other.body),
        };
        loser.expect_error(409, "domain_taken");
        assert_eq!(paid(), expected);
        assert_eq!(kit.orders(RegistrarOperation::Register, &name), 1);
    }
}

//! Concurrent purchases of one name.

use domains::DomainError;
use futures_util::future::join_all;

use crate::kit::{Kit, actor, purchase};

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_organizations_gets_the_name_and_the_other_is_not_charged() {
    let kit = Kit::start().await;
    for round in 0..5 {
        let name = format!("race-{round}.example");
        let (one, two) = (kit.org().await, kit.org().await);
        let buy = async |org| kit.domains.purchase(&actor(), org, purchase(&name)).await;
        let results = join_all([one, two, two, one].map(buy)).await;
        let winners: Vec<_> =
            [one, two, two, one].into_iter().zip(&results).filter(|(_, result)| result.is_ok()).collect();
        let [(winner, _), (again, _)] = winners[..] else { panic!("{results:?}") };
        assert_eq!(winner, again, "{results:?}");
        let loser = if winner == one { two } else { one };
        assert!(
            results.iter().filter_map(|result| result.as_ref().err()).all(|it| matches!(it, DomainError::Taken(_)))
        );
        assert_eq!((kit.world.charges(winner), kit.world.charges(loser)), ((1, 0), (0, 0)));
        assert_eq!(kit.world.state().registrations.iter().filter(|it| **it == name).count(), 1);
    }
    assert_eq!(kit.count("test.names").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn organization_that_races_itself_buys_once() {
    let kit = Kit::start().await;
    let results = join_all((0..20).map(|_| kit.buy("self.example"))).await;
    for result in &results {
        assert_eq!(result.as_ref().unwrap().domain.name, "self.example");
    }
    assert!(results.iter().any(|result| result.as_ref().unwrap().is_new));
    assert_eq!(kit.world.charges(kit.org), (1, 0));
    assert_eq!((kit.world.calls("register"), kit.world.state().registrations.len()), (1, 1));
    assert_eq!(kit.events().await, ["domain.purchase"]);
}

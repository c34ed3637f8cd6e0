//! Kills the process of a purchase before or after the effect of each step. At the same time, both providers fail
//! before or after the effects of their calls.

use domains::{DomainError, RegistrarError};
use futures_util::{StreamExt as _, stream};
use kernel::OrgId;
use serde_json::{Value, json};

use crate::kit::{Kit, LATER, actor, purchase};
use crate::providers::{Fault, When};

const STEPS: [&str; 6] = ["check", "order", "charge", "zone", "register", "nameservers"];
const WHEN: [Option<When>; 3] = [None, Some(When::Before), Some(When::After)];

/// A combination of a kill and faults. Each case has its own organization and name.
#[derive(Debug, Clone)]
struct Case {
    org: OrgId,
    name: String,
    kill: Option<(&'static str, When)>,
    payments: Option<When>,
    registrar: Option<When>,
    /// Whether the registrar refuses the registration.
    is_refused: bool,
    /// Whether the request is repeated. If not, the background job continues the purchase.
    is_repeated: bool,
}

async fn cases(kit: &Kit) -> Vec<Case> {
    let kills = STEPS.iter().flat_map(|step| [When::Before, When::After].map(|when| Some((*step, when))));
    let mut cases = Vec::new();
    for kill in kills.chain([None]) {
        for payments in WHEN {
            for registrar in WHEN {
                for is_refused in [false, true].into_iter().filter(|is_refused| !is_refused || payments == registrar) {
                    let (number, org) = (cases.len(), kit.org().await);
                    let name = format!("case-{number}.example");
                    let is_repeated = number % 4 < 2;
                    cases.push(Case { org, name, kill, payments, registrar, is_refused, is_repeated });
                }
            }
        }
    }
    cases
}

impl Case {
    fn prepare(&self, kit: &Kit) {
        if let Some((step, when)) = self.kill {
            let is_payment = matches!(step, "order" | "charge");
            let subject = if is_payment { self.org.to_string() } else { self.name.clone() };
            kit.world.fault(subject, step, when, Fault::Kill);
        }
        if let Some(when) = self.payments {
            kit.world.fault(self.org, "charge", when, Fault::Fail);
            kit.world.fault(self.org, "refund", when, Fault::Fail);
        }
        if let Some(when) = self.registrar {
            kit.world.fault(&self.name, "register", when, Fault::Fail);
            kit.world.fault(&self.name, "nameservers", when, Fault::Fail);
        }
        if self.is_refused {
            let refusal = RegistrarError::Rejected("status 422".to_owned());
            kit.world.state().refusals.insert(self.name.clone(), refusal);
        }
    }

    /// Sends one request, and kills its process if a call never returns. Returns whether the purchase ended.
    async fn request(&self, kit: &Kit) -> bool {
        let actor = actor();
        let bought = kit.domains.purchase(&actor, self.org, purchase(&self.name));
        let Some(bought) = kit.world.run(Some([self.org.to_string(), self.name.clone()]), bought).await else {
            return false;
        };
        match bought {
            Ok(created) => {
                assert_eq!(created.domain.state, domains::DomainState::Active, "{self:?}");
                true
            }
            Err(DomainError::RegistrarRejected) => true,
            Err(DomainError::RegistrarFailed | DomainError::Incomplete) => false,
            Err(error) => panic!("{self:?}: {error:?}"),
        }
    }

    /// Returns whether the purchase ends before the step at which it would be killed.
    fn is_unreachable(&self) -> bool {
        self.is_refused && self.kill.is_some_and(|(step, _)| matches!(step, "zone" | "nameservers"))
    }

    fn check(&self, kit: &Kit, rows: &[Value]) {
        let row = rows.iter().find(|row| row["name"] == self.name).unwrap();
        let registrations = kit.world.state().registrations.iter().filter(|name| **name == self.name).count();
        let (charged, refunded) = kit.world.charges(self.org);
        if self.is_refused {
            // A request after the end starts another purchase.
            assert!(refunded == 1 || self.is_repeated && refunded > 1, "{self:?}: {refunded}");
            assert_eq!((charged, registrations), (0, 0), "{self:?}");
            assert_eq!(*row, json!({ "name": self.name, "state": null, "zones": 0, "paid": 0, "open": 0 }), "{self:?}");
        } else {
            assert_eq!((charged, refunded, registrations), (1, 0, 1), "{self:?}");
            let expected = json!({ "name": self.name, "state": "active", "zones": 1, "paid": 1, "open": 0 });
            assert_eq!(*row, expected, "{self:?}");
        }
    }
}

/// The domain, the zones and the charges of each purchase.
const RESULTS: &str = "SELECT DISTINCT s.input ->> 'name' AS name, d.state, \
    (SELECT count(*) FROM test.zones z WHERE z.name = s.input ->> 'name') AS zones, \
    (SELECT count(*) FROM domains.charges c WHERE c.name = s.input ->> 'name' AND c.state = 'paid') AS paid, \
    (SELECT count(*) FROM domains.charges c WHERE c.name = s.input ->> 'name' AND c.state IN ('pending', 'declined')) AS open \
    FROM store.sagas s LEFT JOIN domains.domains d ON d.name = s.input ->> 'name'";

#[tokio::test(flavor = "multi_thread")]
async fn purchase_survives_every_combination_of_failures() {
    let kit = Kit::start().await;
    let cases = cases(&kit).await;
    assert!(cases.len() >= 60, "{}", cases.len());
    cases.iter().for_each(|case| case.prepare(&kit));
    let mut open = cases.clone();
    // Each round simulates a new process, which starts after the lease of the killed process has expired.
    for round in 0..4 {
        let requests = open.iter().map(async |case| {
            let is_requested = round == 0 || case.is_repeated;
            (is_requested && case.request(&kit).await, case.clone())
        });
        let results: Vec<_> = stream::iter(requests).buffer_unordered(6).collect().await;
        open = results.into_iter().filter(|(is_ended, _)| !is_ended).map(|(_, case)| case).collect();
        kit.advance(LATER);
    }
    // Each kill ends the whole job.
    for _ in 0..200 {
        if kit.count("store.sagas WHERE finished_at IS NULL").await == 0 {
            break;
        }
        kit.resume().await;
        kit.advance(LATER);
    }
    assert_eq!(kit.count("store.sagas WHERE finished_at IS NULL").await, 0);
    assert_eq!(kit.count("test.names").await, 0, "a name is still reserved");
    let unmet = kit.world.state().faults.iter().filter(|fault| fault.3 == Fault::Kill).count();
    // A refused registration never reaches the steps zone and nameservers.
    assert_eq!(unmet, cases.iter().filter(|case| case.is_unreachable()).count());
    let rows = kit.db_rows(RESULTS).await;
    for case in &cases {
        case.check(&kit, &rows);
    }
}

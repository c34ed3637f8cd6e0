//! Takeovers of hostnames: the owner of a domain gets its name from another project by publishing a TXT record.

use std::time::Duration;

use futures_util::future::join_all;
use kernel::ownership::{TakeoverObstacle, VerifyRecord, VerifyRecordType};
use kernel::{ApiError as _, NamedProject, OrgId, Plan, ProjectId};
use projects::{Hostname, NewHsts, Notice, Org, ProjectError};
use serde_json::json;
use testkit::Audit;

use crate::kit::{ACTIVE, DAY, Kit, NAME, ORIGIN, PENDING};

/// A fixture with a holder `acme/shop` and a project `owner/site`, both deployed.
struct Conflict {
    kit: Kit,
    acme: Org,
    shop: ProjectId,
    owner: Org,
    site: ProjectId,
}

impl Conflict {
    async fn start() -> Self {
        let kit = Kit::start().await;
        let (acme, owner) = (kit.db_org("acme", Plan::Free).await, kit.db_org("owner", Plan::Free).await);
        let (shop, site) = (kit.project(&acme, "shop").await.id, kit.project(&owner, "site").await.id);
        kit.deploy(&acme, shop, "page").await.unwrap();
        kit.deploy(&owner, site, "page").await.unwrap();
        let conflict = Self { kit, acme, shop, owner, site };
        conflict.forget().await;
        conflict
    }

    /// Discards the audit events and the updates of desired state so far.
    async fn forget(&self) {
        self.kit.audited().await;
        self.kit.node.take_updates();
    }

    /// Claims the name for the holder.
    async fn hold(&self, name: &str) -> Hostname {
        self.kit.claim(&self.acme, self.shop, name).await.unwrap()
    }

    /// Claims the name for the owner of the domain.
    async fn ask(&self, name: &str) -> Result<Hostname, ProjectError> {
        self.kit.claim(&self.owner, self.site, name).await
    }

    /// Returns the error of a claim by the owner of the domain, and asserts that the claim had no side effects.
    async fn refusal(&self, name: &str) -> (VerifyRecord, TakeoverObstacle) {
        let refusal = held(self.ask(name).await, name);
        assert_eq!((self.kit.audited().await, self.kit.take_served_names().len()), (vec![], 0));
        refusal
    }

    async fn holds(&self, name: &str) -> bool {
        self.kit.find_hostname(self.shop, name).await.is_some()
    }

    fn publish(&self, records: &[&VerifyRecord]) {
        let texts: Vec<String> = records.iter().map(|record| record.value.clone()).collect();
        self.kit.records.txt(&records[0].name, &texts);
    }

    /// Returns the audit event of the project that loses the name.
    fn lost(&self, event: &'static str, name: &str) -> Audit {
        self.kit.system_audit_row(event, &self.acme, self.shop, json!({ "hostname": name }))
    }

    /// Returns the audit event of a takeover.
    fn acquired(&self, name: &str) -> Audit {
        let data = json!({ "hostname": name, "proof": "txt", "takenOver": true });
        self.kit.audit_row("hostname.add", &self.owner, self.site, data)
    }

    /// Returns the notifications of a takeover.
    fn notices(&self, name: &str) -> [(OrgId, Notice); 2] {
        let (hostname, project) = (name.to_owned(), |id, name: &str| NamedProject { id, name: name.to_owned() });
        let (shop, site) = (project(self.shop, "shop"), project(self.site, "site"));
        [
            (self.acme.id, Notice::HostnameTakenOver { project: shop, hostname: hostname.clone() }),
            (self.owner.id, Notice::HostnameAcquired { project: site, hostname }),
        ]
    }
}

/// Returns the record and the obstacle of a rejected claim.
fn held(outcome: Result<Hostname, ProjectError>, name: &str) -> (VerifyRecord, TakeoverObstacle) {
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), &ProjectError::HOSTNAME_TAKEN);
    let details = error.details();
    let ProjectError::HostnameHeld { hostname, record, obstacle } = error else { panic!("{error:?}") };
    assert_eq!(hostname, name);
    assert_eq!(details, Some(json!({ "verify": { "type": "TXT", "name": record.name, "value": record.value } })));
    (record, obstacle)
}

#[tokio::test(flavor = "multi_thread")]
async fn taken_hostname_shows_a_record_that_only_the_asking_project_can_use() {
    let it = Conflict::start().await;
    let holder = it.hold(NAME).await;
    it.forget().await;
    let (record, obstacle) = it.refusal(NAME).await;
    assert_eq!(obstacle, TakeoverObstacle::NotPublished);
    assert_eq!((record.kind, record.name.as_str()), (VerifyRecordType::Txt, "_svc-verify.www.example.org"));
    // The record is stable, and differs between projects, even those of the same organization.
    assert_eq!(it.refusal(NAME).await.0, record);
    let blog = it.kit.project(&it.acme, "blog").await.id;
    let of_blog = held(it.kit.claim(&it.acme, blog, NAME).await, NAME).0;
    let mut values = vec![&holder.verify[0].value, &record.value, &of_blog.value];
    values.dedup();
    assert_eq!(values.len(), 3);

    // The records of other projects and other hostnames do not count.
    it.hold("b.example.org").await;
    it.forget().await;
    let (other, _) = it.refusal("b.example.org").await;
    for wrong in [&holder.verify[0].value, &of_blog.value, &other.value, &record.value.to_uppercase()] {
        it.kit.records.txt(&record.name, std::slice::from_ref(wrong));
        assert_eq!(it.refusal(NAME).await, (record.clone(), TakeoverObstacle::NotPublished));
    }
    // The record has no effect either if it is published at another name.
    it.kit.records.clear();
    it.kit.records.txt(NAME, std::slice::from_ref(&record.value));
    assert_eq!(it.refusal(NAME).await.1, TakeoverObstacle::NotPublished);
    assert!(it.holds(NAME).await && it.kit.orgs.raised.lock().unwrap().is_empty());

    // A failed lookup proves nothing. The error still shows the record.
    it.publish(&[&record]);
    it.kit.records.set_silent(true);
    let failed = TakeoverObstacle::LookupFailed("the name server did not answer in time".to_owned());
    assert_eq!(it.refusal(NAME).await, (record.clone(), failed));
    it.kit.records.set_silent(false);
    assert_eq!(it.ask(NAME).await.unwrap().state, ACTIVE);
}

#[tokio::test(flavor = "multi_thread")]
async fn txt_record_takes_a_hostname_over_from_weaker_claims() {
    let it = Conflict::start().await;
    for (n, holder) in ["pending", "cname", "zone", "lost txt"].into_iter().enumerate() {
        let name = format!("w{n}.example.org");
        match holder {
            "cname" => it.kit.records.cname(&name, ORIGIN),
            "zone" => it.kit.records.zone("example.org"),
            _ => {}
        }
        let claim = it.hold(&name).await;
        let of_holder = VerifyRecord::txt(&name, claim.verification_token.as_ref().unwrap());
        if holder == "lost txt" {
            it.publish(&[&of_holder]);
        }
        let state = it.kit.verify(it.shop, &name).await.unwrap().state;
        assert_eq!(state == ACTIVE, holder != "pending", "{holder}");
        let hsts = NewHsts { max_age: 300, include_sub_domains: false, preload: false };
        it.kit.projects.hsts_set(&it.kit.actor, &it.acme, it.shop, &name, hsts).await.unwrap();
        it.forget().await;
        let (record, obstacle) = it.refusal(&name).await;
        assert_eq!(obstacle, TakeoverObstacle::NotPublished, "{holder}");

        it.publish(&[&record]);
        let now = it.kit.now();
        let taken = it.ask(&name).await.unwrap();
        assert_eq!((taken.state, taken.created_at, taken.verified_at), (ACTIVE, now, Some(now)), "{holder}");
        assert_eq!((taken.verify.len(), taken.last_error.as_deref(), taken.hsts), (0, None, None));
        assert_eq!(record.value, format!("svc-verify={}", taken.verification_token.as_ref().unwrap()));
        assert_eq!(it.kit.find_hostname(it.site, &name).await, Some(taken));
        assert!(!it.holds(&name).await, "{holder}");
        assert_eq!(it.kit.audited().await, [it.acquired(&name), it.lost("hostname.taken_over", &name)], "{holder}");
        assert_eq!(std::mem::take(&mut *it.kit.orgs.raised.lock().unwrap()), it.notices(&name));
        // The desired state of both projects changes with the same commit.
        let updates = it.kit.node.take_updates();
        let (mut projects, serves): (Vec<_>, Vec<_>) =
            updates.into_iter().map(|(project, live)| (project, live.hostnames.contains(&name))).unzip();
        assert_eq!(serves, if holder == "pending" { vec![true] } else { vec![false, true] }, "{holder}");
        assert_eq!(projects.pop(), Some(it.site));
        assert!(projects.iter().all(|project| *project == it.shop));

        // The former holder now needs a TXT record to take the name back.
        let (_, obstacle) = held(it.kit.claim(&it.acme, it.shop, &name).await, &name);
        assert_eq!(obstacle, TakeoverObstacle::NotPublished);
        it.publish(&[&of_holder]);
        assert_eq!(it.kit.claim(&it.acme, it.shop, &name).await.unwrap().state, ACTIVE);
        it.kit.projects.hostname_delete(&it.kit.actor, &it.acme, it.shop, &name).await.unwrap();
        it.kit.orgs.raised.lock().unwrap().clear();
        it.kit.records.clear();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holder_with_a_published_txt_record_keeps_the_hostname() {
    let it = Conflict::start().await;
    let claim = it.hold(NAME).await;
    // The holder is verified by TXT, or it is verified by CNAME and has a TXT record that was not checked yet.
    for by in ["txt", "cname"] {
        if by == "txt" {
            it.kit.publish(&claim);
        } else {
            it.kit.records.cname(NAME, ORIGIN);
        }
        assert_eq!(it.kit.verify(it.shop, NAME).await.unwrap().state, ACTIVE);
        it.forget().await;
        let (record, _) = it.refusal(NAME).await;
        it.publish(&[&record, &claim.verify[0]]);
        assert_eq!(it.refusal(NAME).await, (record, TakeoverObstacle::HolderProves), "{by}");
        it.kit.records.clear();
        it.kit.db_execute("UPDATE projects.hostnames SET state = 'pending_dns', proof = NULL").await;
    }
    // Both records are published, but the holder is not verified yet.
    let (record, _) = it.refusal(NAME).await;
    it.publish(&[&record, &claim.verify[0]]);
    assert_eq!(it.ask(NAME).await.unwrap().state, ACTIVE);
    // The holder's check no longer finds its claim, and the holder cannot take the name back.
    it.forget().await;
    it.kit.advance(60);
    it.kit.projects.hostnames_check().await.unwrap();
    assert_eq!(held(it.kit.claim(&it.acme, it.shop, NAME).await, NAME).1, TakeoverObstacle::HolderProves);
    assert!(it.kit.find_hostname(it.site, NAME).await.is_some_and(|it| it.state == ACTIVE));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_takeover_changes_nothing() {
    let it = Conflict::start().await;
    it.kit.records.cname(NAME, ORIGIN);
    it.hold(NAME).await;
    let before = it.kit.verify(it.shop, NAME).await.unwrap();
    let (record, _) = held(it.ask(NAME).await, NAME);
    it.publish(&[&record]);
    it.kit.audited().await;
    it.kit.node.fail(1);
    let failed = it.ask(NAME).await;
    assert!(matches!(failed, Err(ProjectError::Store(_))), "{failed:?}");
    assert_eq!(it.kit.find_hostname(it.shop, NAME).await, Some(before));
    assert_eq!((it.kit.find_hostname(it.site, NAME).await, it.kit.audited().await), (None, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_takeovers_have_one_winner() {
    let it = Conflict::start().await;
    let third = it.kit.db_org("third", Plan::Free).await;
    let rival = it.kit.project(&third, "site").await.id;
    for n in 0..5 {
        let name = format!("w{n}.example.org");
        it.hold(&name).await;
        let (record, _) = held(it.ask(&name).await, &name);
        let (of_rival, _) = held(it.kit.claim(&third, rival, &name).await, &name);
        it.publish(&[&record, &of_rival]);
        it.forget().await;
        it.kit.orgs.raised.lock().unwrap().clear();
        let outcomes =
            join_all((0..4).map(async |n| {
                if n % 2 == 0 { it.ask(&name).await } else { it.kit.claim(&third, rival, &name).await }
            }))
            .await;
        let winner = usize::from(outcomes[1].is_ok());
        for (n, outcome) in outcomes.into_iter().enumerate() {
            if n % 2 == winner {
                assert_eq!(outcome.unwrap().state, ACTIVE);
            } else {
                let (_, obstacle) = held(outcome, &name);
                assert!(matches!(obstacle, TakeoverObstacle::HolderProves | TakeoverObstacle::Changed), "{obstacle:?}");
            }
        }
        assert!(!it.holds(&name).await);
        let audited: Vec<String> = it.kit.audited().await.into_iter().map(|row| row.event).collect();
        assert_eq!(audited, ["hostname.add", "hostname.taken_over"]);
        assert_eq!(it.kit.orgs.raised.lock().unwrap().len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn takeovers_in_opposite_directions_do_not_deadlock() {
    let it = Conflict::start().await;
    for n in 0..5 {
        let (a, b) = (format!("a{n}.example.org"), format!("b{n}.example.org"));
        it.hold(&a).await;
        it.ask(&b).await.unwrap();
        let record = held(it.ask(&a).await, &a).0;
        it.publish(&[&record]);
        let record = held(it.kit.claim(&it.acme, it.shop, &b).await, &b).0;
        it.publish(&[&record]);
        let (a, b) = futures_util::join!(it.ask(&a), it.kit.claim(&it.acme, it.shop, &b));
        assert_eq!((a.unwrap().state, b.unwrap().state), (ACTIVE, ACTIVE));
    }
}

impl Conflict {
    /// Runs `change` after the owner's lookup and before the transaction that is based on it.
    async fn ask_during(&self, change: impl AsyncFnOnce()) -> Result<Hostname, ProjectError> {
        let guard = self.kit.records.block_txt().await;
        self.kit.records.take_txt_lookups();
        let unblock = async {
            while self.kit.records.take_txt_lookups() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            change().await;
            drop(guard);
        };
        futures_util::join!(self.ask(NAME), unblock).0
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn takeover_checks_again_what_its_lookup_was_based_on() {
    let it = Conflict::start().await;
    let claim = it.hold(NAME).await;
    let (record, _) = held(it.ask(NAME).await, NAME);
    it.publish(&[&record]);

    // The holder proves its ownership in the meantime.
    let outcome = it
        .ask_during(async || {
            it.publish(&[&record, &claim.verify[0]]);
            let verified = "UPDATE projects.hostnames SET state = 'active', proof = 'txt', verified_at = now()";
            it.kit.db_execute(&format!("{verified} WHERE name = '{NAME}'")).await;
        })
        .await;
    assert_eq!(held(outcome, NAME).1, TakeoverObstacle::HolderProves);
    assert!(it.holds(NAME).await);

    // The holder releases the name in the meantime. The request then claims the free name, and the published record
    // verifies this claim.
    it.publish(&[&record]);
    let outcome = it
        .ask_during(async || {
            it.kit.projects.hostname_delete(&it.kit.actor, &it.acme, it.shop, NAME).await.unwrap();
        })
        .await;
    assert_eq!(outcome.unwrap().state, PENDING);
    assert_eq!(it.kit.verify(it.site, NAME).await.unwrap().state, ACTIVE);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_of_the_former_holder_does_not_change_the_hostname() {
    let it = Conflict::start().await;
    let claim = it.hold(NAME).await;
    let (record, _) = held(it.ask(NAME).await, NAME);
    // The job observes the proof of the holder, but the name is taken over before the job applies the result.
    it.kit.publish(&claim);
    let (guard, check) = it.kit.blocked_check().await;
    let token = record.value.strip_prefix("svc-verify=").unwrap();
    let site = it.site.as_uuid();
    it.kit
        .db_execute(&format!(
            "UPDATE projects.hostnames SET project_id = '{site}', verification_token = '{token}' WHERE name = '{NAME}'"
        ))
        .await;
    it.forget().await;
    drop(guard);
    check.await.unwrap().unwrap();
    assert_eq!((it.kit.audited().await, it.kit.take_served_names().len()), (vec![], 0));
    assert_eq!(it.kit.find_hostname(it.site, NAME).await.unwrap().state, PENDING);
}

#[tokio::test(flavor = "multi_thread")]
async fn taken_over_hostname_is_verified_daily_by_its_record() {
    let it = Conflict::start().await;
    it.hold(NAME).await;
    let (record, _) = held(it.ask(NAME).await, NAME);
    it.publish(&[&record]);
    let taken = it.ask(NAME).await.unwrap();
    it.kit.advance(DAY);
    assert_eq!(it.kit.projects.hostnames_check().await.unwrap(), 1);
    assert_eq!(it.kit.find_hostname(it.site, NAME).await, Some(taken));
    it.kit.orgs.raised.lock().unwrap().clear();
    it.kit.records.clear();
    it.kit.advance(DAY);
    it.kit.projects.hostnames_check().await.unwrap();
    let raised = it.kit.orgs.raised.lock().unwrap().clone();
    assert!(matches!(&raised[..], [(org, Notice::HostnameUnproved { .. })] if *org == it.owner.id), "{raised:?}");
}

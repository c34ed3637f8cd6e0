//! Custom hostnames over time: claims that lapse, names that lose their proof, and the pass that looks after them.

use futures_util::future::join_all;
use kernel::Plan;
use projects::{Notice, ProjectDeletion, ProjectError};
use serde_json::json;

use crate::kit::{ACTIVE, DAY, Kit, NAME, ORIGIN, PENDING};

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_nobody_proves_lapses() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let (shop, blog) = (kit.project(&org, "shop").await.id, kit.project(&org, "blog").await.id);
    let from = kit.now();
    let claim = kit.claim(&org, shop, NAME).await.unwrap();
    let until = |seconds: i64| (from.plus_seconds(seconds).unix_millis() - kit.now().unix_millis()) / 1000;
    kit.advance(until(7 * DAY - 1));
    kit.projects.hostnames_check().await.unwrap();
    assert_eq!(kit.shown(shop, NAME).await.unwrap().state, PENDING);
    let refused = kit.claim(&org, blog, NAME).await;
    assert!(matches!(refused, Err(ProjectError::HostnameTaken(_))), "{refused:?}");

    // Over, and in nobody's way though no pass ran.
    kit.advance(until(7 * DAY));
    kit.audited().await;
    let second = kit.claim(&org, blog, NAME).await.unwrap();
    assert_ne!(second.verification_token, claim.verification_token);
    assert_eq!(kit.shown(shop, NAME).await, None);
    let gone = kit.verify(shop, NAME).await;
    assert!(matches!(gone, Err(ProjectError::HostnameNotFound)), "{gone:?}");
    // The first claim's record proves nothing for the second.
    kit.publish(&claim);
    assert_eq!(kit.verify(blog, NAME).await.unwrap().state, PENDING);

    // The pass ends what is over.
    kit.advance(7 * DAY);
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 1);
    let data = json!({ "hostname": NAME });
    assert_eq!(kit.audited().await, [kit.tells_itself("hostname.lapse", &org, blog, data)]);
    assert_eq!(kit.shown(blog, NAME).await, None);
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 0);

    // Whoever claims again begins again, and a proof that comes at the last moment counts.
    let third = kit.claim(&org, blog, NAME).await.unwrap();
    kit.advance(7 * DAY);
    let fourth = kit.claim(&org, blog, NAME).await.unwrap();
    assert!(fourth.created_at > third.created_at && fourth.verification_token != third.verification_token);
    kit.advance(7 * DAY);
    kit.publish(&fourth);
    kit.projects.hostnames_check().await.unwrap();
    assert_eq!(kit.shown(blog, NAME).await.unwrap().state, ACTIVE);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_active_name_whose_proof_is_gone_is_told_of_and_then_detached() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.served(&org).await;
    kit.records.forget();
    // Not due before a day is over.
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 0);
    kit.advance(DAY);
    let lost = kit.now();
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 1);
    let data = json!({ "hostname": NAME });
    assert_eq!(kit.audited().await, [kit.tells_itself("hostname.unproved", &org, project, data.clone())]);
    let (project_name, hostname, until) = ("shop".to_owned(), NAME.to_owned(), lost.plus_seconds(7 * DAY));
    let raised = (org.id, Notice::HostnameUnproved { project: project_name, hostname, until });
    assert_eq!(*kit.orgs.raised.lock().unwrap(), std::slice::from_ref(&raised));
    let hostname = kit.shown(project, NAME).await.unwrap();
    assert_eq!((hostname.state, hostname.checks.len()), (ACTIVE, 3));
    assert!(hostname.last_error.unwrap().contains(ORIGIN));
    assert_eq!(kit.told_names().len(), 0);

    // Each day of the week, by the pass and by hand: served on, and told once.
    for _ in 1..7 {
        kit.advance(DAY - 1);
        kit.projects.hostnames_check().await.unwrap();
        assert_eq!(kit.verify(project, NAME).await.unwrap().state, ACTIVE);
        assert_eq!(kit.audited().await, []);
    }
    assert_eq!(*kit.orgs.raised.lock().unwrap(), [raised]);
    assert_eq!(kit.told_names().len(), 0);

    // The week is over.
    kit.advance(DAY);
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 1);
    assert_eq!(kit.audited().await, [kit.tells_itself("hostname.detach", &org, project, data.clone())]);
    assert_eq!(kit.told_names(), [["shop-acme.svc.example"]]);
    let hostname = kit.shown(project, NAME).await.unwrap();
    assert_eq!((hostname.state, hostname.verify.len(), hostname.verified_at), (PENDING, 2, None));
    assert_eq!(kit.orgs.raised.lock().unwrap().len(), 1);

    // A claim once more: proved in its week it is served, by the CNAME too, for nobody else had it.
    kit.records.cname(NAME, ORIGIN);
    kit.advance(60);
    kit.projects.hostnames_check().await.unwrap();
    let expected = json!({ "hostname": NAME, "proof": "cname" });
    assert_eq!(kit.audited().await, [kit.tells_itself("hostname.verify", &org, project, expected)]);
    assert_eq!(kit.told_names(), [["shop-acme.svc.example", NAME]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_name_that_stays_unproved_lapses() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.served(&org).await;
    kit.records.forget();
    for (days, state) in [(1, Some(ACTIVE)), (7, Some(PENDING)), (6, Some(PENDING)), (1, None)] {
        kit.advance(days * DAY);
        kit.projects.hostnames_check().await.unwrap();
        assert_eq!(kit.shown(project, NAME).await.map(|it| it.state), state);
    }
    let data = json!({ "hostname": NAME });
    assert_eq!(kit.audited().await, [kit.tells_itself("hostname.lapse", &org, project, data)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_active_name_that_regains_its_proof_is_well_again() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.served(&org).await;
    let well = kit.shown(project, NAME).await.unwrap();
    for times in 1..=2 {
        kit.records.forget();
        kit.advance(DAY);
        kit.projects.hostnames_check().await.unwrap();
        assert_eq!(kit.orgs.raised.lock().unwrap().len(), times);
        assert_ne!(kit.shown(project, NAME).await.unwrap(), well);
        kit.audited().await;
        // On the last day of the week.
        kit.advance(6 * DAY);
        kit.records.cname(NAME, ORIGIN);
        kit.projects.hostnames_check().await.unwrap();
        assert_eq!(kit.shown(project, NAME).await.unwrap(), well);
        kit.advance(2 * DAY);
        kit.projects.hostnames_check().await.unwrap();
        assert_eq!(kit.shown(project, NAME).await.unwrap(), well);
        assert_eq!((kit.audited().await, kit.told_names().len()), (vec![], 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_follows_from_a_name_server_that_is_silent() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.served(&org).await;
    kit.records.silence(true);
    for _ in 0..30 {
        kit.advance(DAY);
        kit.projects.hostnames_check().await.unwrap();
        let hostname = kit.verify(project, NAME).await.unwrap();
        assert_eq!((hostname.state, hostname.last_error), (ACTIVE, None));
    }
    assert_eq!((kit.audited().await, kit.orgs.raised.lock().unwrap().len()), (vec![], 0));

    // Not even when the proof was gone before, and the week is over.
    kit.records.silence(false);
    kit.records.forget();
    kit.advance(DAY);
    kit.projects.hostnames_check().await.unwrap();
    kit.audited().await;
    kit.records.silence(true);
    kit.advance(30 * DAY);
    kit.projects.hostnames_check().await.unwrap();
    assert_eq!((kit.shown(project, NAME).await.unwrap().state, kit.audited().await), (ACTIVE, vec![]));
    // It is looked for again within the hour.
    kit.records.silence(false);
    kit.records.cname(NAME, ORIGIN);
    kit.advance(3600);
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 1);
    let well = kit.shown(project, NAME).await.unwrap();
    assert_eq!((well.state, well.last_error, well.checks), (ACTIVE, None, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pass_looks_at_what_is_due_and_at_nothing_else() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    let mut claims = Vec::new();
    for n in 0..6 {
        claims.push(kit.claim(&org, project, &format!("w{n}.example.org")).await.unwrap());
    }
    for claim in &claims[..3] {
        kit.publish(claim);
    }
    kit.audited().await;
    // All are due; half of them are proved.
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 6);
    let expected: Vec<_> = claims[..3]
        .iter()
        .map(|it| kit.tells_itself("hostname.verify", &org, project, json!({ "hostname": it.name, "proof": "txt" })))
        .collect();
    let audited = kit.audited().await;
    assert!(audited.len() == 3 && expected.iter().all(|row| audited.contains(row)), "{audited:?}");
    for (n, claim) in claims.iter().enumerate() {
        let shown = kit.shown(project, &claim.name).await.unwrap();
        assert_eq!((shown.state == ACTIVE, shown.last_error.is_some()), (n < 3, n >= 3), "{shown:?}");
    }

    // The others are due a minute later, and the active ones not for a day.
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 0);
    kit.records.asked();
    kit.advance(60);
    assert_eq!((kit.projects.hostnames_check().await.unwrap(), kit.records.asked()), (3, 3));
    kit.advance(30);
    assert_eq!((kit.projects.hostnames_check().await.unwrap(), kit.records.asked()), (0, 0));
    kit.advance(DAY);
    assert_eq!(kit.projects.hostnames_check().await.unwrap(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn passes_and_verifies_at_once_conclude_once() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    kit.deploy(&org, project, "page").await.unwrap();
    for n in 0..10 {
        let name = format!("w{n}.example.org");
        kit.claim(&org, project, &name).await.unwrap();
        kit.records.cname(&name, ORIGIN);
    }
    // Proved; lost; detached; lapsed.
    for (event, days) in [("verify", 0), ("unproved", 1), ("detach", 7), ("lapse", 7)] {
        if event == "unproved" {
            kit.records.forget();
        }
        kit.advance(days * DAY);
        kit.audited().await;
        let verifies = join_all((0..10).map(async |n| {
            let name = format!("w{n}.example.org");
            let _ = kit.verify(project, &name).await;
        }));
        let passes = join_all((0..4).map(|_| kit.projects.hostnames_check()));
        let (_, passes) = futures_util::join!(verifies, passes);
        assert!(passes.iter().all(Result::is_ok), "{passes:?}");
        let mut told: Vec<_> =
            kit.audited().await.into_iter().map(|row| (row.event, row.data["hostname"].clone())).collect();
        told.sort_by_key(|(_, name)| name.to_string());
        let expected: Vec<_> =
            (0..10).map(|n| (format!("hostname.{event}"), json!(format!("w{n}.example.org")))).collect();
        assert_eq!(told, expected);
    }
    assert_eq!(kit.orgs.raised.lock().unwrap().len(), 10);
    assert_eq!(kit.told_names().last().unwrap(), &["shop-acme.svc.example"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_from_before_the_proof_explains_nothing() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    let claim = kit.claim(&org, project, "b.example.org").await.unwrap();
    let slow = kit.held_pass().await;
    kit.db_execute("UPDATE projects.hostnames SET state = 'active', verified_at = now() WHERE name = 'b.example.org'")
        .await;
    drop(slow.0);
    slow.1.await.unwrap().unwrap();
    let shown = kit.shown(project, &claim.name).await.unwrap();
    assert_eq!((shown.state, shown.last_error, shown.checks), (ACTIVE, None, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_regains_its_proof_while_it_is_looked_at_is_not_detached() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.served(&org).await;
    kit.records.forget();
    kit.advance(DAY);
    kit.projects.hostnames_check().await.unwrap();
    kit.advance(7 * DAY);
    kit.audited().await;
    let slow = kit.held_pass().await;
    kit.db_execute("UPDATE projects.hostnames SET lost_at = NULL, last_error = NULL, checks = NULL").await;
    drop(slow.0);
    slow.1.await.unwrap().unwrap();
    let shown = kit.shown(project, NAME).await.unwrap();
    assert_eq!((shown.state, shown.last_error, shown.checks), (ACTIVE, None, vec![]));
    assert_eq!(kit.audited().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_that_goes_while_its_name_is_looked_at_stops_no_pass() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let (shop, blog) = (kit.project(&org, "shop").await.id, kit.project(&org, "blog").await.id);
    let gone = kit.claim(&org, shop, NAME).await.unwrap();
    let kept = kit.claim(&org, blog, "blog.example.org").await.unwrap();
    kit.publish(&gone);
    let slow = kit.held_pass().await;
    let deletion = ProjectDeletion { confirm: "shop".to_owned() };
    kit.projects.delete(&kit.actor, &org, shop, deletion).await.unwrap();
    kit.audited().await;
    drop(slow.0);
    assert_eq!(slow.1.await.unwrap().unwrap(), 2);
    assert_eq!(kit.audited().await, []);
    // What was seen of the other one is written down.
    assert!(kit.shown(blog, &kept.name).await.unwrap().last_error.is_some());
}

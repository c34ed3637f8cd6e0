//! Custom hostnames: claims, verification and deletion.

use futures_util::future::join_all;
use kernel::ownership::{VerifyRecord, VerifyRecordType};
use kernel::{ApiError as _, Code, Plan, Time};
use projects::{Check, Hostname, HostnameKind, HostnameTls, ProjectDeletion, ProjectError, Proof};
use serde_json::json;

use crate::kit::{ACTIVE, DAY, Kit, NAME, ORIGIN, PENDING, ZONE_ID};

fn check(proof: Proof, expected: &str, observed: &[&str], at: Time) -> Check {
    let observed = Some(observed.iter().map(|text| (*text).to_owned()).collect());
    Check { proof, expected: expected.to_owned(), observed, error: None, at }
}

const ZONE: &str = "a hosted zone of this organization";

#[tokio::test(flavor = "multi_thread")]
async fn claim_reserves_a_name_and_returns_verification_records() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.live_project(&org).await;

    let now = kit.now();
    let claim = kit.claim(&org, project, "WWW.Example.ORG.").await.unwrap();
    let token = claim.verification_token.clone().unwrap();
    assert!(token.len() >= 32 && token.bytes().all(|b| b.is_ascii_hexdigit()), "{token}");
    let record = |kind, name: &str, value: String| VerifyRecord { kind, name: name.to_owned(), value };
    let expected = Hostname {
        name: NAME.to_owned(),
        kind: HostnameKind::Custom,
        state: PENDING,
        verify: vec![
            record(VerifyRecordType::Txt, "_svc-verify.www.example.org", format!("svc-verify={token}")),
            record(VerifyRecordType::Cname, NAME, ORIGIN.to_owned()),
        ],
        verification_token: Some(token),
        last_error: None,
        checks: Vec::new(),
        created_at: now,
        verified_at: None,
        tls: HostnameTls::OFF,
        hsts: None,
        held_by_another_org: false,
    };
    assert_eq!(claim, expected);
    let data = json!({ "hostname": NAME });
    assert_eq!(kit.audited().await, [kit.audit_row("hostname.add", &org, project, data)]);
    // The name is reserved, but not served.
    assert_eq!(kit.take_served_names(), [[""; 0]; 0]);

    // The default hostname comes first, regardless of alphabetical order.
    let early = kit.claim(&org, project, "a.example.org").await.unwrap();
    kit.audited().await;
    let list = kit.projects.hostnames(project).await.unwrap();
    let [default, rest @ ..] = list.as_slice() else { panic!("an empty list") };
    assert_eq!((default.name.as_str(), default.kind), ("shop-acme.svc.example", HostnameKind::Default));
    assert_eq!((default.state, default.verify.len(), &default.verification_token), (ACTIVE, 0, &None));
    assert_eq!(rest, [early, expected.clone()]);

    // Claiming the same name again in any spelling is a no-op.
    for name in [NAME, "WWW.EXAMPLE.ORG", "www\u{3002}example\u{3002}org", "ｗｗｗ.example.org."] {
        assert_eq!(kit.claim(&org, project, name).await.unwrap(), expected, "{name}");
        assert_eq!(kit.audited().await, []);
    }

    // Other projects cannot claim the name, even in the same organization.
    let other = kit.db_org("other", Plan::Free).await;
    for (org, name) in [(&org, "blog"), (&other, "shop")] {
        let project = kit.project(org, name).await.id;
        let refused = kit.claim(org, project, NAME).await.unwrap_err();
        assert!(matches!(&refused, ProjectError::HostnameHeld { hostname, .. } if hostname == NAME), "{refused:?}");
        assert_eq!(refused.code(), &ProjectError::HOSTNAME_TAKEN);
        assert_eq!(kit.audited().await, []);
    }
    // A project of another organization is not found.
    let refused = kit.claim(&other, project, "b.example.org").await;
    assert!(matches!(refused, Err(ProjectError::NotFound)), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_hostnames_are_rejected() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    let (label, name) = (format!("{}.example.org", "a".repeat(64)), format!("{}example.org", "a.".repeat(130)));
    for name in [
        "",
        ".",
        "example",
        "localhost",
        "example..org",
        ".example.org",
        "-a.example.org",
        "a-.example.org",
        "a_b.example.org",
        "a b.example.org",
        " www.example.org",
        "www.example.org\n",
        "a\u{0}.example.org",
        "xn--a.example.org",
        "*.example.org",
        "www.*.org",
        "＊.example.org",
        "https://example.org",
        "example.org:443",
        "example.org/x",
        "a@example.org",
        "example.org?x",
        "example.org#x",
        "example.org\\x",
        "127.0.0.1",
        "::1",
        "[::1]",
        "0x7f.1",
        "1.2.3.0x4",
        "１２７.0.0.1",
        "com",
        "co.uk",
        "github.io",
        "svc.example",
        "SVC.EXAMPLE.",
        "x.svc.example",
        "shop-acme.svc.example",
        "x.ｓvc.example",
        "x.svc\u{3002}example",
        &label,
        &name,
    ] {
        let refused = kit.claim(&org, project, name).await.unwrap_err();
        assert!(matches!(&refused, ProjectError::Field(it) if it.path == "name"), "{name:?}: {refused:?}");
        assert_eq!(refused.code(), &kernel::Code::BAD_REQUEST);
    }
    assert_eq!(kit.audited().await, []);
    assert_eq!(kit.db_number("SELECT count(*) FROM projects.hostnames").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn strongest_available_proof_activates_a_hostname() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    kit.deploy(&org, project, "page").await.unwrap();
    for (n, proof) in [Proof::Txt, Proof::Cname, Proof::Zone].into_iter().enumerate() {
        let name = format!("w{n}.example.org");
        let claim = kit.claim(&org, project, &name).await.unwrap();
        // Publish this proof and all weaker ones.
        kit.records.zone("example.org");
        if proof != Proof::Zone {
            kit.records.cname(&name, ORIGIN);
        }
        if proof == Proof::Txt {
            let texts = ["v=spf1 -all".to_owned(), claim.verify[0].value.clone()];
            kit.records.txt(&claim.verify[0].name, &texts);
        }
        kit.audited().await;
        kit.node.take_updates();

        let now = kit.now();
        let active = kit.verify(project, &name).await.unwrap();
        assert_eq!((active.state, active.verified_at, active.last_error.as_deref()), (ACTIVE, Some(now), None));
        assert_eq!((active.verify.len(), active.checks.len()), (0, 0));
        assert_eq!(kit.find_hostname(project, &name).await, Some(active.clone()));
        let data = json!({ "hostname": name, "proof": proof });
        assert_eq!(kit.audited().await, [kit.audit_row("hostname.verify", &org, project, data)]);
        let [served] = kit.take_served_names().try_into().unwrap();
        assert!(served.contains(&name) && served.len() == n + 2, "{served:?}");

        // Verifying again is a no-op while the proof exists.
        assert_eq!(kit.verify(project, &name.to_uppercase()).await.unwrap(), active);
        assert_eq!((kit.audited().await, kit.take_served_names().len()), (vec![], 0));
        kit.records.clear();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn similar_records_are_not_a_proof() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    let claim = kit.claim(&org, project, NAME).await.unwrap();
    let other = kit.claim(&org, project, "b.example.org").await.unwrap();
    let text = claim.verify[0].value.clone();
    let token = claim.verification_token.clone().unwrap();
    for texts in [format!("{text}x"), format!(" {text}"), token, text.to_uppercase(), other.verify[0].value.clone()] {
        kit.records.txt(&claim.verify[0].name, &[texts]);
        assert_eq!(kit.verify(project, NAME).await.unwrap().state, PENDING);
    }
    kit.records.clear();
    kit.records.txt(NAME, &[text]);
    for target in
        ["svc.example", "x.fallback.svc.example", "fallback.svc.example.evil.example", "shop-acme.svc.example"]
    {
        kit.records.cname(NAME, target);
        assert_eq!(kit.verify(project, NAME).await.unwrap().state, PENDING, "{target}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_verification_reports_the_observed_records() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    let claim = kit.claim(&org, project, NAME).await.unwrap();
    let text = claim.verify[0].value.clone();
    kit.audited().await;
    kit.records.txt("_svc-verify.www.example.org", &["svc-verify=old".to_owned()]);
    kit.records.cname(NAME, "elsewhere.example");

    let now = kit.now();
    let pending = kit.verify(project, NAME).await.unwrap();
    let checks = vec![
        check(Proof::Txt, &text, &["svc-verify=old"], now),
        check(Proof::Cname, ORIGIN, &["elsewhere.example"], now),
        check(Proof::Zone, ZONE, &[], now),
    ];
    let error = pending.last_error.clone().unwrap();
    for part in ["_svc-verify.www.example.org", &text, "svc-verify=old", ORIGIN, "elsewhere.example"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    // All other fields are unchanged.
    assert_eq!(pending, Hostname { checks, last_error: Some(error), ..claim.clone() });
    assert_eq!(kit.find_hostname(project, NAME).await, Some(pending.clone()));
    assert_eq!(kit.audited().await, []);

    // A timeout is reported as an error, not as missing records.
    kit.records.set_silent(true);
    let pending = kit.verify(project, NAME).await.unwrap();
    let silent = "the name server did not answer in time";
    for check in &pending.checks[..2] {
        assert_eq!((&check.observed, check.error.as_deref()), (&None, Some(silent)));
    }
    assert_eq!(pending.state, PENDING);
    assert!(pending.last_error.unwrap().contains(silent));

    // Missing records are reported as such, and a proof clears the error message.
    kit.records.set_silent(false);
    kit.records.clear();
    let pending = kit.verify(project, NAME).await.unwrap();
    assert!(pending.checks.iter().all(|check| check.observed == Some(vec![]) && check.error.is_none()));
    assert!(pending.last_error.unwrap().contains("found none"));
    kit.publish(&claim);
    let active = kit.verify(project, NAME).await.unwrap();
    assert_eq!((active.state, active.last_error, active.checks), (ACTIVE, None, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn restricted_caller_claims_no_name_in_a_zone_without_access_to_it() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    kit.records.zone("example.org");
    kit.audited().await;
    let refused = kit.claim_with_zones(&org, project, NAME, &[]).await.unwrap_err();
    assert!(matches!(refused, ProjectError::ZoneForbidden), "{refused:?}");
    assert_eq!(refused.code(), &Code::FORBIDDEN);
    assert_eq!((kit.audited().await, kit.find_hostname(project, NAME).await), (vec![], None));

    // A name outside of the zones needs a proof in the public DNS.
    let outside = kit.claim_with_zones(&org, project, "www.example.net", &[]).await.unwrap();
    assert_eq!(outside.state, PENDING);
    kit.publish(&outside);
    assert_eq!(kit.verify(project, "www.example.net").await.unwrap().state, ACTIVE);

    let active = kit.claim_with_zones(&org, project, NAME, &[ZONE_ID]).await.unwrap();
    assert_eq!(active.state, ACTIVE);
    // Claiming a name again changes nothing.
    kit.audited().await;
    assert_eq!(kit.claim_with_zones(&org, project, NAME, &[]).await.unwrap(), active);
    assert_eq!(kit.audited().await, []);

    // The name of another project cannot be taken over either.
    let blog = kit.project(&org, "blog").await.id;
    let held = kit.claim(&org, blog, NAME).await.unwrap_err();
    let ProjectError::HostnameHeld { record, .. } = held else { panic!("{held:?}") };
    kit.records.txt(&record.name, &[record.value]);
    let refused = kit.claim_with_zones(&org, blog, NAME, &[]).await.unwrap_err();
    assert!(matches!(refused, ProjectError::ZoneForbidden), "{refused:?}");
    assert_eq!(kit.find_hostname(project, NAME).await.unwrap().state, ACTIVE);
    assert_eq!(kit.claim_with_zones(&org, blog, NAME, &[ZONE_ID]).await.unwrap().state, ACTIVE);
}

#[tokio::test(flavor = "multi_thread")]
async fn name_of_another_organization_requires_the_txt_record() {
    let kit = Kit::start().await;
    let (acme, other) = (kit.db_org("acme", Plan::Free).await, kit.db_org("other", Plan::Free).await);
    let shop = kit.project_with_hostname(&acme).await;
    let blog = kit.project(&acme, "blog").await.id;
    let other_project = kit.project(&other, "shop").await.id;
    // The hostname or its project is deleted, and the CNAME still points to the platform.
    kit.projects.hostname_delete(&kit.actor, &acme, shop, NAME).await.unwrap();
    // The same organization can still use the CNAME.
    assert_eq!(kit.claim(&acme, blog, NAME).await.unwrap().verify.len(), 2);
    assert_eq!(kit.verify(blog, NAME).await.unwrap().state, ACTIVE);
    let deletion = ProjectDeletion { confirm: "blog".to_owned() };
    kit.projects.delete(&kit.actor, &acme, blog, deletion).await.unwrap();

    let claim = kit.claim(&other, other_project, NAME).await.unwrap();
    assert!(matches!(&claim.verify[..], [VerifyRecord { kind: VerifyRecordType::Txt, .. }]), "{claim:?}");
    assert_eq!(kit.find_hostname(other_project, NAME).await.as_ref(), Some(&claim));
    assert_eq!(kit.projects.detail(&other, other_project).await.unwrap().hostnames.last(), Some(&claim));
    kit.records.zone("example.org");
    kit.audited().await;
    let pending = kit.verify(other_project, NAME).await.unwrap();
    assert_eq!((pending.state, &pending.verify), (PENDING, &claim.verify));
    for check in &pending.checks[1..] {
        assert!(check.error.as_ref().unwrap().contains("another organization"), "{check:?}");
        assert_eq!(check.observed.as_ref().unwrap().len(), 1);
    }
    assert!(pending.last_error.unwrap().contains("Another organization used this hostname before"));
    kit.advance(60);
    kit.projects.hostnames_check().await.unwrap();
    assert_eq!(kit.find_hostname(other_project, NAME).await.unwrap().state, PENDING);
    assert_eq!(kit.audited().await, []);

    kit.publish(&claim);
    assert_eq!(kit.verify(other_project, NAME).await.unwrap().state, ACTIVE);
    let data = json!({ "hostname": NAME, "proof": "txt" });
    assert_eq!(kit.audited().await, [kit.audit_row("hostname.verify", &other, other_project, data)]);
    // The other organization owns it now, so the CNAME is enough.
    kit.records.clear();
    kit.records.cname(NAME, ORIGIN);
    kit.advance(DAY);
    kit.projects.hostnames_check().await.unwrap();
    assert_eq!((kit.audited().await, kit.orgs.raised.lock().unwrap().len()), (vec![], 0));
    // For the first organization, the CNAME is no longer enough.
    kit.projects.hostname_delete(&kit.actor, &other, other_project, NAME).await.unwrap();
    kit.claim(&acme, shop, NAME).await.unwrap();
    assert_eq!(kit.verify(shop, NAME).await.unwrap().state, PENDING);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_claims_have_one_winner() {
    let kit = Kit::start().await;
    let (acme, other) = (kit.db_org("acme", Plan::Free).await, kit.db_org("other", Plan::Free).await);
    let projects = [(&acme, kit.project(&acme, "shop").await.id), (&other, kit.project(&other, "shop").await.id)];
    let third = kit.db_org("third", Plan::Free).await;
    let former = kit.project(&third, "shop").await.id;
    // Two cases: a free name, and a name with an expired claim.
    for (name, expired) in [(NAME, false), ("b.example.org", true)] {
        if expired {
            kit.claim(&third, former, name).await.unwrap();
            kit.advance(7 * DAY);
        }
        let race = (0..20).map(|n| kit.claim(projects[n % 2].0, projects[n % 2].1, name));
        let outcomes = join_all(race).await;
        let taken = |it: &Result<Hostname, ProjectError>| matches!(it, Err(ProjectError::HostnameHeld { .. }));
        assert!(outcomes.iter().all(|it| it.is_ok() || taken(it)), "{outcomes:?}");
        let winner = usize::from(outcomes[1].is_ok());
        assert!(outcomes.iter().enumerate().all(|(n, it)| it.is_ok() == (n % 2 == winner)), "{outcomes:?}");
        let mut claims: Vec<_> = outcomes.into_iter().flatten().collect();
        claims.dedup();
        assert_eq!(claims.len(), 1, "{claims:?}");
        let (org, project) = projects[winner];
        let data = json!({ "hostname": name });
        let mut expected = vec![kit.audit_row("hostname.add", org, project, data.clone())];
        expected.extend(expired.then(|| kit.system_audit_row("hostname.lapse", &third, former, data)));
        assert_eq!(kit.audited().await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_name_is_free_immediately() {
    let kit = Kit::start().await;
    let (org, other) = (kit.db_org("acme", Plan::Free).await, kit.db_org("other", Plan::Free).await);
    let shop = kit.project_with_hostname(&org).await;
    let (blog, other_project) = (kit.project(&org, "blog").await.id, kit.project(&other, "shop").await.id);
    for (org, project, name) in [
        (&org, shop, "b.example.org"),
        (&org, shop, "no name"),
        (&org, shop, ""),
        (&org, blog, NAME),
        (&other, other_project, NAME),
    ] {
        let refused = kit.projects.hostname_delete(&kit.actor, org, project, name).await;
        assert!(matches!(refused, Err(ProjectError::HostnameNotFound)), "{name}: {refused:?}");
        let refused = kit.verify(project, name).await;
        assert!(matches!(refused, Err(ProjectError::HostnameNotFound)), "{name}: {refused:?}");
    }
    let refused = kit.projects.hostname_delete(&kit.actor, &org, shop, "SHOP-acme.svc.example").await.unwrap_err();
    assert!(matches!(refused, ProjectError::DefaultHostname), "{refused:?}");
    assert_eq!(refused.code(), &kernel::Code::BAD_REQUEST);
    let default = kit.verify(shop, "shop-acme.svc.example").await.unwrap();
    assert_eq!((default.state, default.kind), (ACTIVE, HostnameKind::Default));
    assert_eq!((kit.audited().await, kit.take_served_names().len()), (vec![], 0));

    kit.projects.hostname_delete(&kit.actor, &org, shop, "WWW.example.org.").await.unwrap();
    let data = json!({ "hostname": NAME });
    assert_eq!(kit.audited().await, [kit.audit_row("hostname.delete", &org, shop, data)]);
    assert_eq!(kit.take_served_names(), [["shop-acme.svc.example"]]);
    assert_eq!(kit.find_hostname(shop, NAME).await, None);
    let again = kit.projects.hostname_delete(&kit.actor, &org, shop, NAME).await;
    assert!(matches!(again, Err(ProjectError::HostnameNotFound)), "{again:?}");

    // Anyone can claim the deleted hostname. Deleting a pending claim does not change the desired state.
    kit.claim(&other, other_project, NAME).await.unwrap();
    kit.projects.hostname_delete(&kit.actor, &other, other_project, NAME).await.unwrap();
    assert_eq!(kit.take_served_names(), [[""; 0]; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn schema_rejects_a_preload_without_a_max_age() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    kit.project(&org, "shop").await;
    let update = "UPDATE projects.hostnames SET hsts_include_subdomains = true, hsts_preload = true";
    let refused = kit.database.try_run(update).await.unwrap_err().to_string();
    assert!(refused.contains("hostnames_hsts_preload_check"), "{refused}");
}

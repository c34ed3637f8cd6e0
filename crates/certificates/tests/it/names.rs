//! Which names need a certificate.

use certificates::ApiCertificate;
use kernel::CertificateId;

use crate::kit::Kit;

#[tokio::test]
async fn served_hostnames_need_a_certificate() {
    let it = Kit::start(1).await;
    let project = it.project("site", &["a.example", "b.example"]).await;
    it.sync(project).await;
    assert_eq!(it.names().await, ["a.example pending", "b.example pending"]);
    it.db_execute("DELETE FROM projects.hostnames WHERE name = 'a.example'").await;
    it.sync(project).await;
    assert_eq!(it.names().await, ["b.example pending"]);
    it.advance(1);
    it.certificates.run_due().await.unwrap();
    assert_eq!(it.db_number("SELECT count(*) FROM certificates.names").await, 1);

    // Without a deployment, nothing is served.
    it.db_execute("UPDATE projects.projects SET live_version = NULL").await;
    it.sync(project).await;
    assert_eq!(it.names().await, [""; 0]);
}

#[tokio::test]
async fn hostname_moves_to_another_project() {
    let it = Kit::start(1).await;
    let (loser, winner) = (it.project("loser", &["a.example"]).await, it.project("winner", &[]).await);
    it.sync(loser).await;
    it.ports.published.lock().unwrap().clear();
    it.serve(winner, "a.example").await;
    it.sync(loser).await;
    it.sync(winner).await;
    assert_eq!(it.names().await, ["a.example pending"]);
    let project = it.db_rows("SELECT project_id FROM certificates.names").await[0]["project_id"].clone();
    assert_eq!(project, winner.as_uuid().to_string());
    let published: Vec<_> = it.ports.published.lock().unwrap().iter().map(|(project, _)| *project).collect();
    assert!(published.contains(&loser) && published.contains(&winner), "{published:?}");
}

#[tokio::test]
async fn reconciliation_adds_and_ends_names() {
    let it = Kit::start(1).await;
    it.project("one", &["a.example", "one-acme.apps.example"]).await;
    let two = it.project("two", &["b.example"]).await;
    it.certificates.reconcile().await.unwrap();
    assert_eq!(it.names().await, ["a.example pending", "b.example pending", "one-acme.apps.example pending"]);
    it.db_execute(&format!("UPDATE projects.projects SET deleted_at = now() WHERE id = '{}'", two.as_uuid())).await;
    it.certificates.reconcile().await.unwrap();
    assert_eq!(it.names().await, ["a.example pending", "one-acme.apps.example pending"]);

    // The certificate of the default hostname stays until the wildcard has one.
    let with_platform_org = it.with_platform_org();
    let all = ["*.apps.example pending", "a.example pending", "one-acme.apps.example pending"];
    with_platform_org.reconcile().await.unwrap();
    assert_eq!(it.names().await, all);
    it.certify("*.apps.example", 30).await;
    with_platform_org.reconcile().await.unwrap();
    assert_eq!(it.names().await, ["*.apps.example active", "a.example pending"]);
}

#[tokio::test]
async fn reconciliation_that_changes_nothing_is_not_audited() {
    let it = Kit::start(1).await;
    it.project("one", &["a.example"]).await;
    let events = "SELECT count(*) FROM store.audit WHERE event = 'certificate.reconcile'";
    // The hostname is removed between the comparison and the lock.
    *it.ports.at_lock.lock().unwrap() = Some("DELETE FROM projects.hostnames WHERE name = 'a.example'".to_owned());
    it.certificates.reconcile().await.unwrap();
    assert_eq!((it.names().await.len(), it.db_number(events).await), (0, 0));
    // The no-op was rolled back, and so was the removal.
    for _ in 0..2 {
        it.certificates.reconcile().await.unwrap();
        assert_eq!((it.names().await.len(), it.db_number(events).await), (1, 1));
    }
}

#[tokio::test]
async fn wildcard_without_its_setting_is_served_until_its_expiry() {
    let it = Kit::start(1).await;
    it.project("one", &["one-acme.apps.example"]).await;
    let with_platform_org = it.with_platform_org();
    with_platform_org.reconcile().await.unwrap();
    it.certify("*.apps.example", 30).await;
    for certificates in [&it.certificates, &with_platform_org, &it.certificates] {
        certificates.reconcile().await.unwrap();
        it.certificates.run_due().await.unwrap();
        assert_eq!(it.names().await, ["*.apps.example active"]);
    }
    it.advance(24 * 24 * 3600);
    it.certificates.reconcile().await.unwrap();
    assert_eq!(it.names().await, ["*.apps.example active", "one-acme.apps.example pending"]);
    it.advance(7 * 24 * 3600);
    it.certificates.reconcile().await.unwrap();
    it.certificates.run_due().await.unwrap();
    assert_eq!(it.certified().await, [""; 0]);
}

#[tokio::test]
async fn server_leaves_a_name_that_its_settings_exclude_to_others_for_an_hour() {
    let it = Kit::start(1).await;
    let project = it.project("site", &["a.example"]).await;
    it.sync(project).await;
    let with_platform_org = it.with_platform_org();
    with_platform_org.reconcile().await.unwrap();
    it.advance(3500);
    it.certificates.reconcile().await.unwrap();
    assert_eq!(it.without_authorities().run_due().await.unwrap(), 0);
    assert_eq!(it.certificates.run_due().await.unwrap(), 1);
    assert_eq!(it.names().await, ["*.apps.example pending", "a.example failed"]);
    assert_eq!(with_platform_org.run_due().await.unwrap(), 1);
    // Its zone does not exist yet.
    assert_eq!(it.names().await, ["*.apps.example pending", "a.example failed"]);
    assert_eq!(it.db_number("SELECT count(*) FROM certificates.names WHERE failures > 0").await, 1);
    // A wildcard without a certificate is removed.
    it.advance(3800);
    assert_eq!(it.certificates.run_due().await.unwrap(), 3);
    assert_eq!(it.names().await, ["a.example failed"]);
}

#[tokio::test]
async fn api_needs_a_certificate_unless_the_wildcard_covers_it() {
    let it = Kit::start(1).await;
    let api = it.with_api("api.example", None);
    api.reconcile().await.unwrap();
    api.reconcile().await.unwrap();
    assert_eq!(it.names().await, ["api.example pending"]);
    assert_eq!(it.db_number("SELECT count(*) FROM store.audit WHERE event = 'certificate.platform'").await, 1);
    assert!(api.api_certificate(None).await.unwrap().is_none());
    it.certify("api.example", 30).await;
    // A server without the setting interrupts no connection.
    it.certificates.reconcile().await.unwrap();
    assert_eq!(it.names().await, ["api.example active"]);
    // Nodes get only wildcards.
    let mut connection = it.store.connection().await.unwrap();
    assert_eq!(api.platform_certificates(&mut connection).await.unwrap(), []);
    drop(connection);
    it.advance(31 * 24 * 3600);
    it.certificates.reconcile().await.unwrap();
    it.certificates.run_due().await.unwrap();
    assert_eq!((it.names().await, it.certified().await), (vec![], vec![]));

    let covered = it.with_api("api.apps.example", Some(it.org));
    covered.reconcile().await.unwrap();
    assert_eq!(it.names().await, ["*.apps.example pending"]);
    let alone = it.with_api("api.apps.example", None);
    alone.reconcile().await.unwrap();
    it.advance(3600);
    alone.run_due().await.unwrap();
    assert_eq!(it.names().await, ["api.apps.example failed"]);
}

#[tokio::test]
async fn server_without_an_authority_keeps_the_certificates_of_served_hostnames() {
    let it = Kit::start(1).await;
    let project = it.project("site", &["a.example", "b.example"]).await;
    it.sync(project).await;
    it.certify("a.example", 30).await;
    it.certify("b.example", 30).await;
    let unset = it.without_authorities();
    it.db_execute("DELETE FROM projects.hostnames WHERE name = 'b.example'").await;
    it.sync_with(&unset, project).await;
    for _ in 0..3 {
        unset.reconcile().await.unwrap();
        unset.run_due().await.unwrap();
        it.advance(7200);
    }
    assert_eq!((it.names().await, it.certified().await), (vec!["a.example active".into()], vec!["a.example".into()]));
}

#[tokio::test]
async fn failures_outlive_the_removal_of_a_hostname_for_a_day() {
    let it = Kit::start(1).await;
    let project = it.project("site", &["a.example"]).await;
    it.sync(project).await;
    it.certificates.run_due().await.unwrap();
    for _ in 0..2 {
        it.db_execute("DELETE FROM projects.hostnames").await;
        it.sync(project).await;
        it.certificates.run_due().await.unwrap();
        it.serve(project, "a.example").await;
        it.sync(project).await;
        assert_eq!(it.names().await, ["a.example failed"]);
        assert_eq!(it.certificates.run_due().await.unwrap(), 0);
    }
    it.advance(121);
    assert_eq!(it.certificates.run_due().await.unwrap(), 1);
    assert_eq!(it.db_number("SELECT failures FROM certificates.names").await, 2);
    it.db_execute("DELETE FROM projects.hostnames").await;
    it.sync(project).await;
    it.certificates.run_due().await.unwrap();
    assert_eq!(it.db_number("SELECT count(*) FROM certificates.names").await, 1);
    it.advance(24 * 3600);
    it.certificates.run_due().await.unwrap();
    assert_eq!(it.db_number("SELECT count(*) FROM certificates.names").await, 0);
}

#[tokio::test]
async fn hostname_of_another_organization_gets_another_certificate() {
    let it = Kit::start(1).await;
    let (loser, other) = (it.project("loser", &["a.example"]).await, it.another_org("other").await);
    it.sync(loser).await;
    it.certify("a.example", 30).await;
    let winner = it.project("winner", &[]).await;
    it.serve(winner, "a.example").await;
    it.sync(winner).await;
    assert_eq!((it.names().await, it.certified().await.len()), (vec!["a.example active".into()], 1));
    let winner = it.project_of(other, "winner", &[]).await;
    it.serve(winner, "a.example").await;
    it.sync(winner).await;
    assert_eq!((it.names().await, it.certified().await.len()), (vec!["a.example pending".into()], 0));
}

#[tokio::test]
async fn nothing_is_issued_without_an_authority() {
    let it = Kit::start(0).await;
    let project = it.project("site", &["a.example"]).await;
    it.sync(project).await;
    it.certificates.reconcile().await.unwrap();
    assert_eq!((it.names().await, it.certificates.run_due().await.unwrap()), (Vec::new(), 0));
}

#[tokio::test]
async fn wildcard_replaces_an_expiring_certificate_of_the_api() {
    let it = Kit::start(1).await;
    it.with_api("api.apps.example", None).reconcile().await.unwrap();
    let api = it.with_api("api.apps.example", Some(it.org));
    api.reconcile().await.unwrap();
    assert_eq!(it.names().await, ["*.apps.example pending", "api.apps.example pending"]);
    it.certify("api.apps.example", 30).await;
    it.certify("*.apps.example", 60).await;
    let rows = it.db_rows("SELECT id FROM certificates.certificates ORDER BY name").await;
    let ids = rows.iter().map(|row| CertificateId::from_uuid(row["id"].as_str().unwrap().parse().unwrap()));
    let [wildcard, own]: [CertificateId; 2] = ids.collect::<Vec<_>>().try_into().unwrap();
    it.advance(22 * 24 * 3600);
    assert_eq!(api.api_certificate(Some(own)).await.unwrap(), Some(ApiCertificate::Held));
    // A week before its expiry.
    it.advance(24 * 3600);
    assert_eq!(api.api_certificate(Some(wildcard)).await.unwrap(), Some(ApiCertificate::Held));
    // Without a valid one, the certificate that expired last is served.
    it.advance(38 * 24 * 3600);
    assert_eq!(api.api_certificate(Some(wildcard)).await.unwrap(), Some(ApiCertificate::Held));
}

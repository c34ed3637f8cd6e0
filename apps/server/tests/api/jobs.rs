//! Metrics of background jobs, and the counters of alerts.

use ::chaos::{NetworkFault, Proxy};
use testkit::TestDatabase;

use crate::process::Process;
use crate::support::eventually;

/// The jobs that need Postgres, in a server with a signer. `projects.sweep_uploads` needs only its clock.
const ON_POSTGRES: [&str; 23] = [
    "billing.count_stuck_topups",
    "certificates.reconcile",
    "certificates.run_due",
    "databases.notify_stale",
    "databases.purge_expired",
    "dns.check_signers",
    "dns.purge_deleted",
    "dns.reconcile_nameservers",
    "gateway.purge_rates",
    "identity.purge_logins",
    "identity.purge_sessions",
    "mail.apply_events",
    "mail.expire_deliveries",
    "mail.maintain_partitions",
    "mail.purge_deleted",
    "mail.purge_old",
    "projects.check_hostnames",
    "projects.purge_claims",
    "projects.purge_deleted",
    "projects.sweep_uploads",
    "store.count_outbox",
    "store.purge_idempotency",
    "store.purge_sagas",
];

/// Returns the value of a metric of a job, if present.
fn value(metrics: &str, metric: &str, job: &str) -> Option<f64> {
    let line = metrics.lines().find(|line| {
        line.strip_prefix(metric).is_some_and(|rest| rest.starts_with('{')) && line.contains(&format!("name=\"{job}\""))
    })?;
    Some(line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// The counters of the recommended alerts (docs/operations.md), with the labels that the alerts select.
const COUNTERS_OF_ALERTS: [(&str, &[&str]); 10] = [
    ("svc_http_requests_refused_total", &[]),
    ("svc_uploads_rejected_total", &[r#"kind="bundle""#, r#"reason="capacity""#]),
    ("svc_desired_unavailable_parts_total", &[r#"part="secrets""#]),
    ("svc_billing_webhooks_total", &[r#"effect="unassigned""#, r#"event="subscription""#]),
    ("svc_billing_customer_mismatches_total", &[]),
    ("svc_mails_refused_total", &[]),
    ("svc_job_failures_total", &[r#"name="dns.purge_deleted""#]),
    ("svc_registrar_requests_total", &[r#"operation="read""#, r#"outcome="failed""#]),
    ("svc_registrar_requests_total", &[r#"operation="renew""#, r#"outcome="ok""#]),
    ("svc_domains_unbilled_renewals_total", &[]),
];

#[tokio::test(flavor = "multi_thread")]
async fn counters_of_alerts_exist_before_the_first_event() {
    let registrar = [
        ("SVC_REGISTRAR_URL", "http://127.0.0.1:9".to_owned()),
        ("SVC_REGISTRAR_USER", "svc".to_owned()),
        ("SVC_REGISTRAR_TOKEN", "secret".to_owned()),
    ];
    let metrics = Process::with(&registrar).await.metrics().await;
    for (name, labels) in COUNTERS_OF_ALERTS {
        let is_counter =
            |line: &&str| line.starts_with(&format!("{name}{{")) && labels.iter().all(|label| line.contains(label));
        let value = metrics.lines().find(is_counter).and_then(|line| line.rsplit(' ').next());
        assert_eq!(value, Some("0"), "{name}: {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn outbox_messages_without_a_worker_are_counted() {
    let database = TestDatabase::create().await;
    database
        .run(
            "INSERT INTO store.outbox (id, topic, key, payload, key_id, attempts, next_attempt_at, dead_lettered_at, created_at) \
             SELECT gen_random_uuid(), 'no.worker', n::text, '', 'test', 0, now(), CASE n WHEN 1 THEN now() END, now() \
             FROM generate_series(1, 3) n",
        )
        .await;
    let process = Process::on(database, &[]).await;
    let count = async |metric: &str, topic: &str| {
        let (name, label) = (format!("svc_outbox_{metric}{{"), format!("topic=\"{topic}\""));
        let metrics = process.metrics().await;
        let line = metrics.lines().find(|line| line.starts_with(&name) && line.contains(&label))?;
        line.rsplit(' ').next()?.parse::<f64>().ok()
    };
    let counted = async || {
        let counts = (count("pending", "no.worker").await?, count("dead_letters", "no.worker").await?);
        (counts == (2.0, 1.0)).then_some(())
    };
    eventually("the messages are counted", counted).await;
    // A topic with a worker has a number before its first message.
    assert_eq!(count("pending", "projects.hostnames").await, Some(0.0));
}

/// A scrape is up to a minute old, and the run of a job with a period of one second can take minutes.
#[test]
fn alert_on_failing_jobs_has_a_minimum_age() {
    let guide = include_str!("../../../../docs/operations.md");
    let alerts = guide.lines().filter(|line| line.contains("time() - svc_job_last_success_timestamp_seconds >"));
    let alerts: Vec<&str> = alerts.collect();
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    let minimum =
        alerts[0].split_once("> clamp_min(3 * svc_job_period_seconds, ").unwrap().1.split_once(')').unwrap().0;
    assert!(minimum.parse::<u64>().unwrap() >= 300, "{minimum}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_failed_jobs_and_include_jobs_that_never_succeeded() {
    let database = TestDatabase::create().await;
    let (proxy, url) = Proxy::start_for_postgres(&database.url()).await.unwrap();
    proxy.set_fault(NetworkFault::Disconnect);
    let settings = [
        ("SVC_DATABASE_URL", url),
        ("SVC_DNS_SIGNER", "127.0.0.1:9".to_owned()),
        ("SVC_NAMESERVERS", "ns1.svc.example,ns2.svc.example".to_owned()),
    ];
    let process = Process::spawn(database, &settings);
    let metrics = eventually("every job that needs Postgres has failed", async || {
        let metrics = process.metrics().await;
        let failed =
            |job: &&str| value(&metrics, "svc_job_failures_total", job).is_some_and(|failures| failures >= 1.0);
        ON_POSTGRES.iter().all(failed).then_some(metrics)
    })
    .await;
    for job in ON_POSTGRES {
        assert_eq!(value(&metrics, "svc_job_last_success_timestamp_seconds", job), Some(0.0), "{job}: {metrics}");
        assert!(value(&metrics, "svc_job_duration_seconds_count", job) >= Some(1.0), "{job}: {metrics}");
        assert!(value(&metrics, "svc_job_period_seconds", job) >= Some(1.0), "{job}: {metrics}");
    }
    // This job needs neither Postgres nor the right clock.
    let is_purged = async || {
        value(&process.metrics().await, "svc_job_last_success_timestamp_seconds", "gateway.purge_local_rates")
            .filter(|at| *at > 1.7e9)
    };
    eventually("the memory of the rate limits is purged", is_purged).await;
    let is_named = async || process.log().contains("dns.check_signers").then_some(());
    eventually("the log names the job", is_named).await;

    proxy.set_fault(NetworkFault::None);
    let job = "dns.check_signers";
    let metrics = eventually("the job succeeds again", async || {
        let metrics = process.metrics().await;
        (value(&metrics, "svc_job_last_success_timestamp_seconds", job)? > 1.7e9).then_some(metrics)
    })
    .await;
    assert!(value(&metrics, "svc_job_failures_total", job) >= Some(1.0), "the failure counter was reset");
}

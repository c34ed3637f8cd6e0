//! A short run of `cargo xtask chaos`: acknowledged writes exist exactly once after crashes and disconnects.

use std::time::Duration;

use ::chaos::{NetworkFault, Proxy, Writers};
use sandbox::{Encryption, SmtpServer};
use testkit::TestDatabase;
use tokio::time::sleep;

use crate::process::Process;
use crate::support::eventually;

const WRITERS: usize = 4;

/// The number of writes between two faults.
const WRITES_BETWEEN_FAULTS: i64 = 12;

/// Terminates all other connections, as a restart of Postgres does.
const TERMINATE_CONNECTIONS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
    WHERE datname = current_database() AND pid <> pg_backend_pid()";

async fn wait_for_writes(process: &Process) {
    let count = async || process.database.number("SELECT count(*) FROM store.audit").await;
    let end = count().await + WRITES_BETWEEN_FAULTS;
    eventually("more writes", async || (count().await >= end).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_exist_exactly_once_after_crashes_and_disconnects() {
    let (database, smtp) = (TestDatabase::create().await, SmtpServer::start(Encryption::None).await);
    let (postgres, url) = Proxy::start_for_postgres(&database.url()).await.unwrap();
    let limits = std::env::temp_dir().join(format!("svc-chaos-{}.toml", std::process::id()));
    std::fs::write(&limits, ::chaos::LOAD_TEST_LIMITS).unwrap();
    let more = [
        ("SVC_DATABASE_URL", url),
        ("SVC_LIMITS", limits.display().to_string()),
        ("SVC_NAMESERVERS", "ns1.localhost,ns2.localhost".to_owned()),
        ("SVC_SMTP_URL", smtp.url()),
        ("SVC_MAIL_FROM", "Svc <no-reply@svc.example>".to_owned()),
    ];
    let mut process = Process::on(database, &more).await;
    let mut writers = Writers::start(&process.base, WRITERS).await.unwrap();
    let faults = async {
        for round in 0..6 {
            wait_for_writes(&process).await;
            match round % 3 {
                0 => process.kill_and_restart().await,
                1 => {
                    postgres.set_fault(NetworkFault::Disconnect);
                    sleep(Duration::from_millis(500)).await;
                    postgres.set_fault(NetworkFault::None);
                }
                _ => drop(process.database.rows(TERMINATE_CONNECTIONS).await),
            }
        }
        wait_for_writes(&process).await;
        Ok(())
    };
    writers.write_during(faults).await.unwrap();
    writers.retry_unacknowledged().await.unwrap();
    assert_eq!(writers.violations(&process.database.url(), &["test"]).await.unwrap(), Vec::<String>::new());
    assert!(writers.stats().acknowledged > 10 * WRITERS, "{:?}", writers.stats());
    // End the leases of the killed processes instead of waiting for them.
    process.database.run("UPDATE store.outbox SET next_attempt_at = created_at").await;
    for invited in writers.invited() {
        eventually(&format!("a mail to {invited}"), async || {
            smtp.received().iter().any(|mail| mail.to.contains(&invited)).then_some(())
        })
        .await;
    }
    std::fs::remove_file(limits).unwrap();
}

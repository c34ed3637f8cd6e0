//! What was acknowledged is there, once, whatever is killed and cut off meanwhile: the short form of `cargo xtask chaos`.

use std::time::Duration;

use ::chaos::{Passage, Proxy, Writers};
use sandbox::{Encryption, SmtpServer};
use testkit::TestDatabase;
use tokio::time::sleep;

use crate::process::Process;

const WRITERS: usize = 4;

/// What a restart of Postgres does to those who are connected.
const END_ALL: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
    WHERE datname = current_database() AND pid <> pg_backend_pid()";

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_there_once_whatever_is_killed_and_cut_off() {
    let (database, smtp) = (TestDatabase::create().await, SmtpServer::start(Encryption::None).await);
    let (postgres, url) = Proxy::before_postgres(&database.url()).await.unwrap();
    let limits = std::env::temp_dir().join(format!("svc-chaos-{}.toml", std::process::id()));
    std::fs::write(&limits, ::chaos::LIMITS).unwrap();
    let more = [
        ("SVC_DATABASE_URL", url),
        ("SVC_LIMITS", limits.display().to_string()),
        ("SVC_NAMESERVERS", "ns1.localhost,ns2.localhost".to_owned()),
        ("SVC_SMTP_URL", smtp.url()),
        ("SVC_MAIL_FROM", "Svc <no-reply@svc.example>".to_owned()),
    ];
    let mut process = Process::on(database, &more).await;
    let mut writers = Writers::start(&process.base, WRITERS).await.unwrap();
    let breaking = async {
        for round in 0..6 {
            sleep(Duration::from_millis(700)).await;
            match round % 3 {
                0 => process.killed_and_started_again().await,
                1 => {
                    postgres.set(Passage::Cut);
                    sleep(Duration::from_millis(500)).await;
                    postgres.set(Passage::Open);
                }
                _ => drop(process.database.rows(END_ALL).await),
            }
        }
        sleep(Duration::from_millis(700)).await;
        Ok(())
    };
    writers.during(breaking).await.unwrap();
    writers.settle().await.unwrap();
    assert_eq!(writers.faults(&process.database.url(), &["test"]).await.unwrap(), Vec::<String>::new());
    assert!(writers.tally().acknowledged > 10 * WRITERS, "{:?}", writers.tally());
    // Mails that a killed process had taken are due again once its lease is over; nobody waits for that here.
    process.database.run("UPDATE store.outbox SET due_at = created_at").await;
    for invited in writers.invited() {
        crate::kit::eventually(&format!("a mail to {invited}"), async || {
            smtp.received().iter().any(|mail| mail.to.contains(&invited)).then_some(())
        })
        .await;
    }
    std::fs::remove_file(limits).unwrap();
}

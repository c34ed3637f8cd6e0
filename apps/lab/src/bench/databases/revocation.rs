//! The time from the revocation of a token until Postgres refuses its login.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqwest::Method;
use serde_json::json;
use tokio::time::sleep;

use super::Database;
use super::enabling::milliseconds;
use crate::bench::platform::Platform;
use crate::bench::report::Report;
use crate::bench::run::percentiles;
use crate::bench::server::string_at;

/// The longest wait for the refusal.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Creates and revokes tokens, and adds a row for each duration.
pub async fn measure(report: &mut Report, platform: &Platform, count: usize) -> Result<()> {
    platform.create_project("revocation").await?;
    let database = Database::enable(platform, "revocation").await?;
    database.wait_until_usable().await?;
    let (mut usable, mut refused, mut answered) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        let start = Instant::now();
        let token = platform.call(Method::POST, "revocation/database/tokens", &json!({})).await?;
        let login = database.with_token(&token)?;
        let session = login.wait_until_usable().await?;
        usable.push(milliseconds(start));
        let start = Instant::now();
        let path = format!("revocation/database/tokens/{}", string_at(&token, "/user")?);
        let (revoked, first_refusal) = tokio::join!(
            async {
                platform.send(Method::DELETE, &path, &json!(null)).await?;
                anyhow::Ok(milliseconds(start))
            },
            first_refusal(&login, start),
        );
        answered.push(revoked?);
        refused.push(first_refusal?);
        session.simple_query("SELECT 1").await.context("the open session was ended")?;
        ensure!(login.connect().await.is_err(), "a revoked token opened a session");
    }
    report.paragraph(&format!("**Tokens.** {count} tokens of a database, created and revoked one after the other."))?;
    report.columns(&["duration", "p50 ms", "max ms"])?;
    for (name, latencies) in [
        ("from the creation until the first login", usable),
        ("from the revocation until a refused login", refused),
        ("from the revocation until the response", answered),
    ] {
        let [p50, max] = percentiles(latencies, [50, 100]).map(|ms| format!("{ms:.0}"));
        report.row(&[name, &p50, &max])?;
    }
    Ok(())
}

/// Logs in until it is refused, and returns the time since `start` in milliseconds.
async fn first_refusal(login: &Database, start: Instant) -> Result<f64> {
    while login.connect().await.is_ok() {
        ensure!(start.elapsed() < TIMEOUT, "the login was not refused in time");
        sleep(Duration::from_millis(5)).await;
    }
    Ok(milliseconds(start))
}

//! Requests with an access token, compared with a session, and the verification without a request.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use oauth::{OAuth, OAuthConfig};

use super::Rig;
use crate::bench::report::Report;
use crate::bench::wrk::Load;
use crate::connected_app::ISSUER;

/// The duration of the measurement without requests.
const DURATION: Duration = Duration::from_secs(2);
/// The number of verifications between two readings of the clock.
const BATCH: u32 = 100;

/// Adds a row for each credential, and the rate of the verification.
pub async fn compare(report: &mut Report, rig: &Rig, load: &Load<'_>, rounds: usize) -> Result<()> {
    let tokens = rig.app.sign_in(&rig.session).await?;
    ensure!(rig.app.use_token(&tokens.access).await? == 200, "the API rejects the access token");
    let url = format!("{}/v1/me", rig.base);
    let credentials = [("session", &rig.session), ("access token", &tokens.access)];
    let mut runs = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for ((_, credential), runs) in credentials.iter().zip(&mut runs) {
            runs.push(load.run(&url, &[("Authorization", &format!("Bearer {credential}"))]).await?);
        }
    }
    report.paragraph(&format!(
        "**Verifications.** `GET /v1/me` with a session and with an access token. {} connections, {rounds} runs of \
         {} s.",
        load.connections, load.seconds
    ))?;
    report.comparison_columns(&[])?;
    let [session, access] = &runs;
    report.comparison("own account", &[("session", session), ("access token", access)])?;
    let rate = verify_repeatedly(rig, &tokens.access).await?;
    report.paragraph(&format!("`OAuth::verify` of one token, without a request: {rate:.0} per second on one core."))
}

/// Returns the verifications per second on this thread.
async fn verify_repeatedly(rig: &Rig, token: &str) -> Result<f64> {
    let config = OAuthConfig {
        issuer: ISSUER.to_owned(),
        audience: ISSUER.to_owned(),
        refresh_grace_seconds: 0,
        device_verification_uri: None,
        cli_client: None,
    };
    let oauth = OAuth::new(rig.store.clone(), Some(config));
    oauth.keys().load().await?;
    let (start, mut verified) = (Instant::now(), 0_u32);
    while start.elapsed() < DURATION {
        for _ in 0..BATCH {
            black_box(oauth.verify(black_box(token)).await.map_err(|reason| anyhow!("rejected: {reason:?}"))?);
        }
        verified += BATCH;
    }
    Ok(f64::from(verified) / start.elapsed().as_secs_f64())
}

//! The authorization server as a process.

use super::kit::{Authentication, Client, DEVICE_CODE, Tokens, expect_oauth_error, public, register_at};
use crate::process::Process;
use crate::process::collector::Collector;

async fn start(extra: &[(&'static str, String)]) -> Process {
    let settings = [
        ("SVC_OAUTH_ISSUER", "http://127.0.0.1".to_owned()),
        ("SVC_OAUTH_DEVICE_FLOW", "on".to_owned()),
        ("SVC_LOG", "trace".to_owned()),
    ];
    Process::with(&[&settings[..], extra].concat()).await
}

/// The grant is checked in the statement that authorizes the caller.
#[tokio::test(flavor = "multi_thread")]
async fn access_token_costs_no_more_statements_than_a_session() {
    let collector = Collector::start();
    let mut process = start(&[collector.setting()]).await;
    let (client, ada) = register_at(&process, public()).await;
    let tokens = client.sign_in(&ada).await;
    process.send_traced(&tokens.access, "/v1/me", 1).await;
    process.stop().await;
    let statements = collector.statements(1);
    assert!((10..=10 * 2).contains(&statements), "10 requests cost {statements} statements");
}

#[tokio::test(flavor = "multi_thread")]
async fn log_contains_no_code_token_or_secret() {
    let process = start(&[]).await;
    let mut new = public();
    (new.confidential, new.device) = (true, true);
    let (client, ada) = register_at(&process, new).await;
    let mut secrets = vec![client.secret.clone().unwrap(), ada.token.clone().unwrap()];
    for authentication in [Authentication::Basic, Authentication::Post] {
        let client = Client { authentication, ..client.clone() };
        let code = client.code(&ada).await;
        let first = Tokens::of(&client.exchange(&code).await);
        let next = Tokens::of(&client.refresh(&first.refresh).await);
        let app = ada.with_token(&next.access);
        app.get("/v1/me").await.expect(200);
        let forged = format!("{}x", next.access);
        let forger = ada.with_token(&forged);
        forger.get("/v1/me").await.expect_error(401, "unauthenticated");
        expect_oauth_error(&client.refresh(&first.refresh).await, 400, "invalid_grant");
        expect_oauth_error(&client.exchange(&code).await, 400, "invalid_grant");
        client.revoke(&next.refresh).await.expect(200);
        let wrong = Client { secret: Some("svc_ocs_wrong-secret".to_owned()), ..client.clone() };
        assert_eq!(wrong.refresh(&next.refresh).await.body["error"], "invalid_client");
        let device = client.post("/oauth/device", &[]).await.expect(200).clone();
        let device_code = device["device_code"].as_str().unwrap().to_owned();
        let poll = client.post("/oauth/token", &[("grant_type", DEVICE_CODE), ("device_code", &device_code)]).await;
        expect_oauth_error(&poll, 400, "authorization_pending");
        secrets.extend([code, first.refresh, first.access, next.refresh, next.access, forged, device_code]);
        secrets.push("svc_ocs_wrong-secret".to_owned());
        secrets.push(super::kit::VERIFIER.to_owned());
    }
    let log = process.log();
    assert!(log.lines().count() > 50);
    for secret in &secrets {
        let line = log.lines().find(|line| line.contains(secret.as_str()));
        assert!(line.is_none(), "{secret} is in the log: {line:?}");
    }
}

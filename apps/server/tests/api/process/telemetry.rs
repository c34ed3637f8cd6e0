//! The metrics, the traces and the log.

use sandbox::{CodeHostServer, Encryption, Endpoint, ResponseFault, SmtpServer};
use serde_json::json;

use super::Process;
use super::collector::{Collector, traceparent};
use crate::support::{client, site};

#[tokio::test(flavor = "multi_thread")]
async fn reads_with_a_session_cost_at_most_two_statements() {
    let collector = Collector::start();
    let mut process = Process::with(&[collector.setting()]).await;
    let token = process.sign_in().await;
    process.json(&token, "POST", "/v1/orgs/ada/projects", Some(json!({ "name": "site" }))).await;
    let upload = client()
        .post(format!("{}/v1/orgs/ada/projects/site/deployments", process.base))
        .bearer_auth(&token)
        .header("content-type", "application/gzip")
        .body(site("page"));
    assert_eq!(upload.send().await.unwrap().status(), 201);
    let paths = [
        ("/v1/me", 2),
        ("/v1/orgs", 2),
        ("/v1/orgs/ada/members", 2),
        ("/v1/orgs/ada/projects", 2),
        ("/v1/orgs/ada/projects/site", 2),
        ("/v1/orgs/ada/projects/site/overview", 3),
    ];
    for (trace, (path, _)) in (1..).zip(paths) {
        process.send_traced(&token, path, trace).await;
    }
    process.stop().await;
    for (trace, (path, each)) in (1..).zip(paths) {
        let statements = collector.statements(trace);
        assert!((10..=10 * each).contains(&statements), "10 requests of {path} cost {statements} statements");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn collector_receives_the_trace_with_a_span_per_statement() {
    let collector = Collector::start();
    let mut process = Process::with(&[collector.setting()]).await;
    let token = process.sign_in().await;
    let trace = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
    let request = client().get(format!("{}/v1/me", process.base)).bearer_auth(&token);
    let response = request.header("traceparent", traceparent(trace)).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(process.metrics().await.contains("\nsvc_db_statement_duration_seconds_count"));
    process.stop().await;

    // Spans of the request and its two statements.
    assert!(collector.spans(trace) >= 3, "{} spans of the trace", collector.spans(trace));
    assert!(collector.count(b"identity.sessions") >= 1 && collector.count(b"request_id") >= 1);
    assert_eq!(collector.count(token.as_bytes()), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_contains_no_credentials_codes_or_contacts() {
    let host = CodeHostServer::start().await;
    let smtp = SmtpServer::start_with_auth(Encryption::None, "svc", "smtp-hush").await;
    let settings = [
        ("SVC_LOG", "trace".into()),
        ("SVC_SMTP_URL", smtp.url().replace("//", "//svc:smtp-hush@")),
        ("SVC_MAIL_FROM", "hello@svc.example".into()),
    ];
    let mut process = Process::with(&[&host.client().settings()[..], &settings].concat()).await;
    let mut secrets = vec!["svc-client-hush".to_owned(), "smtp-hush".into(), "code_0".into(), "gho_0".into()];
    secrets.extend(["ada@code.example".to_owned(), "bob@mail.example".into()]);
    let redirect = url::form_urlencoded::byte_serialize(process.base.as_bytes()).collect::<String>();
    let sign_in = async || {
        let start = format!("{}/v1/auth/codehost/start?redirect={redirect}", process.base);
        let started = client().get(start).send().await.unwrap();
        let header = |response: &reqwest::Response, name: &str| response.headers()[name].to_str().unwrap().to_owned();
        let cookie = header(&started, "set-cookie").split(';').next().unwrap().to_owned();
        let authorize = header(&started, "location");
        let query: Vec<(String, String)> = url::Url::parse(&authorize).unwrap().query_pairs().into_owned().collect();
        let state = query.into_iter().find(|(name, _)| name == "state").unwrap().1;
        let back = header(&client().get(authorize).send().await.unwrap(), "location");
        let finished = client().get(back).header("cookie", &cookie).send().await.unwrap();
        let fragment = header(&finished, "location").split_once('#').unwrap().1.to_owned();
        let params: Vec<(String, String)> = url::form_urlencoded::parse(fragment.as_bytes()).into_owned().collect();
        (params[0].clone(), vec![state, cookie.split_once('=').unwrap().1.to_owned()])
    };
    host.inject(Endpoint::User, Some(ResponseFault::Json(json!({ "id": "ada@code.example", "login": 7 }))));
    let ((name, _), spent) = sign_in().await;
    assert_eq!(name, "error");
    secrets.extend(spent);
    host.inject(Endpoint::User, None);
    let ((name, session), spent) = sign_in().await;
    assert_eq!(name, "token");
    secrets.extend(spent);

    let body = json!({ "name": "ci", "scopes": ["account:read"] });
    let token = process.json(&session, "POST", "/v1/me/tokens", Some(body)).await["token"].as_str().unwrap().to_owned();
    process.json(&token, "GET", "/v1/me", None).await;
    let invite = json!({ "email": "bob@mail.example", "role": "viewer" });
    let invite = process.json(&session, "POST", "/v1/orgs/ada/invites", Some(invite)).await;
    let link = invite["acceptUrl"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    process.json("", "GET", &format!("/v1/invites/{link}"), None).await;
    smtp.wait_for(1).await;
    let wrong = format!("svc_pat_{}", "Wrong".repeat(9));
    for credential in [wrong.as_str(), "nonsense-credential"] {
        let refused = client().get(format!("{}/v1/me", process.base)).bearer_auth(credential).send().await.unwrap();
        assert_eq!(refused.status(), 401);
    }
    secrets.extend([session, token, link, wrong, "nonsense-credential".to_owned()]);
    secrets.push("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".to_owned());
    process.stop().await;
    let log = process.log();
    assert!(log.lines().count() > 50);
    for secret in &secrets {
        let line = log.lines().find(|line| line.contains(secret.as_str()));
        assert!(line.is_none(), "{secret} is in the log: {line:?}");
    }
}

//! SMTP sessions: encryption, credentials and server restarts.

use providers::{Cause, MailError, SmtpConfig, Step, Tls};
use sandbox::{Encryption, SmtpServer};

use crate::mail::{client, config, mail};

/// Sends a mail through this address of the server. Returns whether the session was encrypted.
async fn send_one(server: &SmtpServer, url: &str) -> Result<bool, MailError> {
    let before = server.received().len();
    client(&config(server, url)).send(&mail("1")).await?;
    Ok(server.wait_for(before + 1).await[before].encrypted)
}

fn failed(result: Result<bool, MailError>) -> (Step, String) {
    match result {
        Err(MailError::Transient(Cause::Connection { step: at, reason: what })) => (at, what),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn starttls_is_used_if_offered_or_required() {
    let (tls, plain) = (SmtpServer::start(Encryption::StartTls).await, SmtpServer::start(Encryption::None).await);
    let with = |server: &SmtpServer, tls| format!("{}?tls={tls}", server.url());
    assert_eq!(send_one(&tls, &tls.url()).await, Ok(true));
    assert_eq!(send_one(&tls, &with(&tls, "opportunistic")).await, Ok(true));
    assert_eq!(send_one(&tls, &with(&tls, "required")).await, Ok(true));
    assert_eq!(send_one(&tls, &with(&tls, "none")).await, Ok(false));
    assert_eq!(send_one(&plain, &plain.url()).await, Ok(false));
    assert_eq!(failed(send_one(&plain, &with(&plain, "required")).await).0, Step::Tls);
    assert_eq!(plain.received().len(), 1);
}

#[tokio::test]
async fn implicit_tls_encrypts_from_the_first_byte() {
    let server = SmtpServer::start(Encryption::Implicit).await;
    assert_eq!(send_one(&server, &server.url()).await, Ok(true));
    let by_address = format!("smtps://127.0.0.1:{}", server.address().port());
    assert_eq!(send_one(&server, &by_address).await, Ok(true));
}

#[tokio::test]
async fn server_certificate_is_verified() {
    for encryption in [Encryption::StartTls, Encryption::Implicit] {
        let (server, other) = (SmtpServer::start(encryption).await, SmtpServer::start(encryption).await);
        let step = if encryption == Encryption::Implicit { Step::Connect } else { Step::Tls };
        // The client must reject a certificate of an untrusted CA, of another CA with the same name, or for another
        // hostname.
        let untrusted: SmtpConfig = server.url().parse().unwrap();
        let other_ca = config(&other, &server.url());
        for config in [untrusted, other_ca] {
            let (at, what) = failed(client(&config).send(&mail("1")).await.map(|()| true));
            assert_eq!(at, step);
            assert!(what.contains("certificate"), "{what}");
        }
        let elsewhere = server.url().replace("localhost", "127.0.0.2");
        assert_eq!(failed(send_one(&server, &elsewhere).await).0, Step::Connect);
        assert_eq!(server.received(), []);
    }
}

#[tokio::test]
async fn credentials_are_sent_and_checked() {
    for encryption in [Encryption::None, Encryption::StartTls, Encryption::Implicit] {
        let server = SmtpServer::start_with_auth(encryption, "svc@svc.example", "hüsh:/@").await;
        let with = |credentials: &str| server.url().replace("://", &format!("://{credentials}@"));
        let is_encrypted = encryption != Encryption::None;
        assert_eq!(send_one(&server, &with("svc%40svc.example:h%C3%BCsh%3A%2F%40")).await, Ok(is_encrypted));
        let refused = Cause::Reply { step: Step::Auth, code: 535, enhanced: Some("5.7.8".to_owned()) };
        let error = send_one(&server, &with("svc%40svc.example:wrong")).await.unwrap_err();
        assert_eq!(error, MailError::Transient(refused));
        assert!(!format!("{error} {error:?}").contains("svc.example"), "{error:?}");
        let unauthenticated = Cause::Reply { step: Step::Sender, code: 530, enhanced: Some("5.7.0".to_owned()) };
        assert_eq!(send_one(&server, &server.url()).await, Err(MailError::Transient(unauthenticated)));
        assert_eq!(server.received().len(), 1);
    }
    let open = SmtpServer::start(Encryption::StartTls).await;
    let url = open.url().replace("://", "://svc:hush@");
    assert_eq!(failed(send_one(&open, &url).await).0, Step::Auth);
}

#[tokio::test]
async fn credentials_require_tls_to_a_remote_host() {
    let server = SmtpServer::start_with_auth(Encryption::None, "svc", "hush").await;
    let parsed: SmtpConfig = "smtp://svc:hush@mail.example".parse().unwrap();
    assert_eq!(parsed.tls, Tls::Required);
    let required = format!("{}?tls=required", server.url().replace("://", "://svc:hush@"));
    assert_eq!(failed(send_one(&server, &required).await).0, Step::Tls);
}

#[tokio::test]
async fn mail_is_sent_after_a_server_restart() {
    let server = SmtpServer::start(Encryption::StartTls).await;
    let smtp = client(&config(&server, &server.url()));
    smtp.send(&mail("1")).await.unwrap();
    server.restart().await;
    smtp.send(&mail("2")).await.unwrap();
    server.stop().await;
    assert_eq!(failed(smtp.send(&mail("3")).await.map(|()| true)).0, Step::Connect);
    server.restart().await;
    smtp.send(&mail("3")).await.unwrap();
    let ids: Vec<bool> = (1..=3)
        .map(|n| {
            let id = format!("Message-ID: <{n}@svc.example>");
            String::from_utf8(server.received()[n - 1].raw.clone()).unwrap().contains(&id)
        })
        .collect();
    assert_eq!((ids, server.received().len()), (vec![true; 3], 3));
}

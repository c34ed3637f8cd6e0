//! The notification service: its certificate, the confirmation of the subscription, and the outcomes of relayed mail.
//! The form that sends mail to a project.

use reqwest::{Certificate, Client};
use sandbox::{Encryption, SNS_TOPIC, SmtpServer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::TestSandbox;

const DROPPED: &str = "dropped: the subscription is not confirmed";

/// Starts a service that accepts all messages of the topic.
async fn service() -> (String, mpsc::UnboundedReceiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (received, messages) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            let body = loop {
                stream.read_buf(&mut request).await.unwrap();
                let text = String::from_utf8_lossy(&request);
                let body = text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
                if let Some(body) = body {
                    break body;
                }
            };
            let head = String::from_utf8_lossy(&request).to_ascii_lowercase();
            assert!(head.starts_with("post /v1/hooks/mailer "), "{head}");
            assert!(head.contains("content-type: text/plain; charset=utf-8\r\n"), "{head}");
            received.send(body).unwrap();
            stream.write_all(b"HTTP/1.1 200 .\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await.unwrap();
        }
    });
    (url, messages)
}

#[tokio::test]
async fn outcomes_of_relayed_mail_are_reported() {
    let (api, mut messages) = service().await;
    let sandbox = TestSandbox::with_api(&api).await;
    sandbox.send("ada@a.example", "Subject: x\n\nx").await;
    // A program can trust the authority before the sandbox starts.
    let authority = Certificate::from_pem(include_bytes!("../../keys/authority.pem")).unwrap();
    let client = Client::builder().tls_certs_only([authority]).no_proxy().build().unwrap();
    let subscription = messages.recv().await.unwrap();
    assert_eq!(
        (&subscription["Type"], &subscription["TopicArn"]),
        (&json!("SubscriptionConfirmation"), &json!(SNS_TOPIC))
    );
    let get = async |url: &Value| client.get(url.as_str().unwrap()).send().await.unwrap();
    let certificate = get(&subscription["SigningCertURL"]).await.text().await.unwrap();
    assert!(certificate.starts_with("-----BEGIN CERTIFICATE-----"), "{certificate}");
    // The service has not confirmed the subscription yet, so the outcome of the first mail is lost.
    sandbox.wait_for("/sns", DROPPED, 1).await;
    assert!(sandbox.text("/sns").await.contains("The subscription is not confirmed"));
    assert_eq!(get(&subscription["SubscribeURL"]).await.status(), 200);
    assert!(sandbox.text("/sns").await.contains("The subscription is confirmed"));

    let to = ["bounce@a.example", "ada@a.example", "complain@b.example", "softbounce@a.example", "refuse@a.example"];
    let responses = sandbox.send_to(&to, "Subject: x\n\nx").await;
    assert!(responses.contains("550 5.1.1 <refuse@a.example>"), "{responses}");
    let id = responses.lines().find_map(|line| line.strip_prefix("250 2.0.0 Ok ")).unwrap();
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        let message = messages.recv().await.unwrap();
        assert_eq!((&message["Type"], &message["SignatureVersion"]), (&json!("Notification"), &json!("2")));
        let event: Value = serde_json::from_str(message["Message"].as_str().unwrap()).unwrap();
        assert_eq!((&event["mail"]["messageId"], &event["mail"]["source"]), (&json!(id), &json!("svc@svc.example")));
        outcomes.push(event);
    }
    let address = |recipients: &Value| recipients[0]["emailAddress"].clone();
    assert_eq!(outcomes[0]["delivery"]["recipients"], json!(["ada@a.example", "complain@b.example"]));
    assert_eq!(outcomes[1]["bounce"]["bounceType"], "Permanent");
    assert_eq!(address(&outcomes[1]["bounce"]["bouncedRecipients"]), "bounce@a.example");
    assert_eq!(outcomes[2]["bounce"]["bounceType"], "Transient");
    assert_eq!(address(&outcomes[2]["bounce"]["bouncedRecipients"]), "softbounce@a.example");
    assert_eq!(address(&outcomes[3]["complaint"]["complainedRecipients"]), "complain@b.example");

    // After its end, the subscription gets neither notifications nor another request for a confirmation.
    sandbox.submit("/sns", &[("subscription", "unsubscribe")]).await;
    sandbox.send("ada@a.example", "Subject: x\n\nx").await;
    sandbox.wait_for("/sns", DROPPED, 2).await;
    assert!(sandbox.text("/sns").await.contains("The subscription is ended"));
    sandbox.submit("/sns", &[("subscription", "subscribe")]).await;
    assert_eq!(messages.recv().await.unwrap()["Type"], "UnsubscribeConfirmation");
    assert_eq!(messages.recv().await.unwrap()["Type"], "SubscriptionConfirmation");
}

#[tokio::test]
async fn page_selects_version_and_fault_and_sends_again() {
    let (api, mut messages) = service().await;
    let sandbox = TestSandbox::with_api(&api).await;
    assert_eq!(sandbox.submit("/sns", &[("version", "1")]).await.status(), 302);
    sandbox.submit("/sns", &[("subscription", "subscribe")]).await;
    let first = messages.recv().await.unwrap();
    assert_eq!(first["SignatureVersion"], "1");
    sandbox.submit("/sns", &[("redeliver", first["MessageId"].as_str().unwrap())]).await;
    assert_eq!(messages.recv().await.unwrap(), first);
    sandbox.submit("/sns", &[("subscription", "unsubscribe")]).await;
    assert_eq!(messages.recv().await.unwrap()["Type"], "UnsubscribeConfirmation");
    sandbox.submit("/sns", &[("fault", "expired certificate")]).await;
    let page = sandbox.text("/sns").await;
    assert!(page.contains("<option selected>expired certificate") && page.contains("<option selected>1<"), "{page}");
    for (name, value) in [("fault", "x"), ("version", "3"), ("subscription", "x")] {
        assert_eq!(sandbox.submit("/sns", &[(name, value)]).await.status(), 400, "{name}");
    }
}

#[tokio::test]
async fn form_sends_a_mail_to_a_project() {
    let server = SmtpServer::start(Encryption::None).await;
    let sandbox = TestSandbox::with("http://127.0.0.1:9", server.address()).await;
    let form = |to| [("from", "ada@navy.example"), ("to", to), ("subject", "Grüße"), ("text", "Hallo")];
    let page = sandbox.submit("/mail", &form("bot@app.acme.mail.example")).await.text().await.unwrap();
    let received = server.wait_for(1).await;
    assert!(page.contains(&format!("Sent: 2.0.0 Ok {}", received[0].id)), "{page}");
    assert_eq!(received[0].from, "ada@navy.example");
    assert_eq!(received[0].to, ["bot@app.acme.mail.example"]);
    let page = sandbox.submit("/mail", &form("refuse@app.acme.mail.example")).await.text().await.unwrap();
    assert!(page.contains("Not sent: ") && page.contains("5.1.1"), "{page}");
    let page = sandbox.submit("/mail", &form("not an address")).await.text().await.unwrap();
    assert!(page.contains("Not sent: to: "), "{page}");
    assert_eq!(server.received().len(), 1);
}

//! Hostile bodies: each has its documented status and no effect, and the server sends no request to a host that it names.

use sandbox::{SNS_TOPIC, SnsServer};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::{Fields, HOOK, Hook, delivery};
use crate::overload::{connect, read_response};

/// The largest body, in bytes.
const LIMIT: usize = 512 * 1024;

fn with(fields: &Fields, name: &str, value: impl Into<Value>) -> Vec<u8> {
    let mut fields = fields.clone();
    fields.insert(name.to_owned(), value.into());
    Value::from(fields).to_string().into_bytes()
}

fn without(fields: &Fields, name: &str) -> Vec<u8> {
    let mut fields = fields.clone();
    fields.remove(name);
    Value::from(fields).to_string().into_bytes()
}

/// Bodies that are not messages: 400.
fn malformed(notification: &Fields, confirmation: &Fields) -> Vec<Vec<u8>> {
    let valid = Value::from(notification.clone()).to_string();
    let utf16 = valid.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let texts = [
        "",
        " \r\n",
        "{",
        "}",
        "null",
        "true",
        "17",
        "\"Notification\"",
        "[]",
        "{}",
        "{\"Type\":\"Notification\"}",
        "Type=Notification&MessageId=1",
        "<Notification/>",
        "\0",
        "{\"Type\":\"\\ud800\"}",
    ];
    let mut bodies: Vec<Vec<u8>> = texts.into_iter().map(|text| text.as_bytes().to_vec()).collect();
    bodies.extend([
        format!("\u{feff}{valid}").into_bytes(),
        format!("[{valid}]").into_bytes(),
        format!("{valid}{valid}").into_bytes(),
        format!("{valid}x").into_bytes(),
        valid.replacen('{', "{\"Message\":\"twice\",", 1).into_bytes(),
        valid.replace("\"MessageId\"", "\"messageId\"").into_bytes(),
        valid.replace("\"Type\"", "\"\\u0000Type\"").into_bytes(),
        utf16,
        [b"{\"Type\":\"\xff\xfe\"}", valid.as_bytes()].concat(),
        "[".repeat(LIMIT).into_bytes(),
        "{\"a\":".repeat(LIMIT / 5).into_bytes(),
        format!("{{\"Type\":{}", "9".repeat(LIMIT / 2)).into_bytes(),
    ]);
    let required =
        ["Type", "MessageId", "TopicArn", "Message", "Timestamp", "SignatureVersion", "Signature", "SigningCertURL"];
    for name in required {
        bodies.push(without(notification, name));
        bodies.push(with(notification, name, Value::Null));
        bodies.push(with(notification, name, json!({ "a": ["b"] })));
    }
    bodies.extend([
        with(notification, "Type", "notification"),
        with(notification, "Type", ""),
        with(notification, "MessageId", ""),
        with(notification, "MessageId", "x".repeat(257)),
        with(notification, "MessageId", "a\0b"),
        with(notification, "MessageId", "a\nTimestamp"),
        with(notification, "Timestamp", "a\nb"),
        with(notification, "TopicArn", format!("{SNS_TOPIC}\nType\nx")),
        with(notification, "Subject", "a\r\nb"),
        with(notification, "Subject", 17),
        without(confirmation, "Token"),
        without(confirmation, "SubscribeURL"),
        with(confirmation, "SubscribeURL", json!(["https://evil.example/"])),
    ]);
    bodies
}

/// Messages of another topic or with addresses that are not those of the notification service: 403.
fn misdirected(notification: &Fields, confirmation: &Fields, host: &str, evil: &str) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    for topic in ["", "arn:aws:sns:us-east-1:123456789012:mail2", &SNS_TOPIC.to_uppercase(), &format!("{SNS_TOPIC} ")] {
        bodies.push(with(notification, "TopicArn", topic));
    }
    let file = "SimpleNotificationService-01d088a6f77103d0fe307c0069e40ed6.pem";
    let port = host.rsplit(':').next().unwrap();
    for url in [
        String::new(),
        file.to_owned(),
        format!("https://{evil}/{file}"),
        format!("https://{host}@{evil}/{file}"),
        format!("https://{evil}#{host}/{file}"),
        format!("https://{evil}\\@{host}/{file}"),
        format!("http://{host}/{file}"),
        format!("https://user@{host}/{file}"),
        format!("https://localhost/{file}"),
        format!("https://LOCALHOST:{port}/{file}"),
        format!("https://localhost.:{port}/{file}"),
        format!("https://127.0.0.1:{port}/{file}"),
        format!("https://2130706433:{port}/{file}"),
        format!("https://[::1]:{port}/{file}"),
        format!("https://{host}.evil.example/{file}"),
        format!("https://sns.us-east-1.amazonaws.com/{file}"),
        format!("https://{host}/{file}?x"),
        format!("https://{host}/{file}#x"),
        format!("https://{host}/../{file}"),
        format!("https://{host}//{file}"),
        format!("https://{host}/%53impleNotificationService-0a.pem"),
        format!("https://{host}/SimpleNotificationService-.pem"),
        format!("https://{host}/SimpleNotificationService-xyz.pem"),
        format!("https://{host}/SimpleNotificationService-0a.pem.exe"),
        format!("https://{host}/other.pem"),
        format!("https://{host}\t/{file}"),
        format!(" https://{host}/{file}"),
        format!("https://{host}/{file}\n"),
        "file:///etc/passwd".to_owned(),
        "data:,x".to_owned(),
    ] {
        bodies.push(with(notification, "SigningCertURL", url));
    }
    for url in [
        String::new(),
        format!("https://{evil}/?Action=ConfirmSubscription"),
        format!("https://{host}@{evil}/"),
        format!("http://{host}/"),
        format!("https://127.0.0.1:{port}/"),
        format!("https://{host}/\\..\\"),
        format!("https://{host}/#x"),
        "https://169.254.169.254/latest/meta-data/".to_owned(),
        "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription".to_owned(),
    ] {
        bodies.push(with(confirmation, "SubscribeURL", url));
    }
    bodies
}

/// Messages whose signature is not valid: 403.
fn forged(notification: &Fields, confirmation: &Fields, other: &Fields) -> Vec<Vec<u8>> {
    let mut bodies = vec![
        with(notification, "Signature", ""),
        with(notification, "Signature", "not base64"),
        with(notification, "Signature", "AAAA"),
        with(notification, "Signature", "A".repeat(100_000)),
        with(notification, "Signature", other["Signature"].clone()),
        with(notification, "SignatureVersion", ""),
        with(notification, "SignatureVersion", "1"),
        with(notification, "SignatureVersion", "3"),
        with(notification, "SignatureVersion", "2 "),
        with(notification, "Message", delivery("another", "ada@navy.example").to_string()),
        with(notification, "MessageId", "another"),
        with(notification, "Subject", "another"),
        with(notification, "Timestamp", "1970-01-01T00:00:00.000Z"),
        with(notification, "Type", "UnsubscribeConfirmation"),
        with(confirmation, "Type", "Notification"),
        with(confirmation, "Token", "another"),
    ];
    let mut url = confirmation["SubscribeURL"].as_str().unwrap().to_owned();
    url.push_str("&Another=1");
    bodies.push(with(confirmation, "SubscribeURL", url));
    bodies
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_bodies_are_rejected_without_an_effect() {
    let hook = Hook::start().await;
    let evil = SnsServer::start(None).await;
    let sign = |fields| SnsServer::sign(fields, "2");
    let notification = sign(hook.service.notification(&delivery("relay", "ada@navy.example").to_string()));
    let other = sign(hook.service.notification("other"));
    let confirmation = sign(hook.service.subscription_confirmation());
    let host = hook.service.host();
    let malformed = malformed(&notification, &confirmation);
    let misdirected = misdirected(&notification, &confirmation, host, evil.host());
    for (status, bodies) in [(400, &malformed), (403, &misdirected)] {
        for body in bodies {
            let shown = String::from_utf8_lossy(body).chars().take(2000).collect::<String>();
            assert_eq!(hook.post(body.clone()).await.status, status, "{shown}");
        }
    }
    // None of these bodies caused a request.
    assert_eq!((hook.service.requests(), evil.requests()), (Vec::new(), Vec::new()));
    let forged = forged(&notification, &confirmation, &other);
    for body in &forged {
        assert_eq!(hook.post(body.clone()).await.status, 403, "{}", String::from_utf8_lossy(body));
    }
    assert_eq!(hook.service.requests().len(), 1, "the certificate is fetched once");
    assert!(malformed.len() + misdirected.len() + forged.len() >= 60);
    assert_eq!(hook.post(vec![b' '; LIMIT + 1]).await.status, 413);
    // A large body reserves memory before it is read, so its declared length is checked first.
    let head = format!("POST {HOOK} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", LIMIT + 1);
    let mut stream = connect(&hook.app).await;
    stream.write_all(head.as_bytes()).await.unwrap();
    let response = read_response(&mut stream).await.unwrap();
    assert!(response.starts_with("http/1.1 413 "), "{response}");
    assert!(!hook.service.is_confirmed());
    assert_eq!(hook.recorded().await, 0);
    // The largest message is accepted, and so are the valid messages from which the hostile bodies were made.
    let length = Value::from(notification.clone()).to_string().len();
    let mut large = Value::from(notification.clone()).to_string().into_bytes();
    large.resize(LIMIT, b' ');
    assert!(length < LIMIT);
    assert_eq!(hook.post(large).await.status, 200);
    assert_eq!((hook.deliver(&notification).await, hook.deliver(&confirmation).await), (200, 200));
    assert_eq!(hook.recorded().await, 1);
}

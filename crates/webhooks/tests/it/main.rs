//! Verifies messages that the sandbox's notification service signed. The sandbox shares no code with this crate.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sandbox::{SNS_TOPIC, SnsFault, SnsServer};
use serde_json::{Map, Value, json};
use webhooks::sns::{CertificateHosts, InvalidSnsMessage, SnsCertificate, SnsMessage, SnsTopic};

type Fields = Map<String, Value>;

/// 2026-11-26.
const NOW: i64 = 1_795_651_200;

struct Receiver {
    service: SnsServer,
    topic: SnsTopic,
}

impl Receiver {
    async fn start() -> Self {
        let service = SnsServer::start(None).await;
        let hosts: CertificateHosts = service.host().parse().unwrap();
        Self { topic: SnsTopic::new(SNS_TOPIC.to_owned(), hosts), service }
    }

    fn receive(&self, fields: &Fields) -> Result<SnsMessage, InvalidSnsMessage> {
        self.receive_with(fields, &certificate(None))
    }

    fn receive_with(&self, fields: &Fields, certificate: &SnsCertificate) -> Result<SnsMessage, InvalidSnsMessage> {
        let message = self.topic.read(Value::from(fields.clone()).to_string().as_bytes())?;
        assert_eq!(message.certificate_url().as_str(), self.service.certificate_url());
        message.verify(certificate, NOW)
    }

    fn read(&self, body: &str) -> Result<(), InvalidSnsMessage> {
        self.topic.read(body.as_bytes()).map(drop)
    }
}

fn certificate(fault: Option<SnsFault>) -> SnsCertificate {
    let pem = SnsServer::signing_certificate(fault);
    let base64: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    SnsCertificate::from_der(&STANDARD.decode(base64).unwrap()).unwrap()
}

fn with(fields: &Fields, name: &str, value: impl Into<Value>) -> Fields {
    let mut fields = fields.clone();
    fields.insert(name.to_owned(), value.into());
    fields
}

fn without(fields: &Fields, name: &str) -> Fields {
    let mut fields = fields.clone();
    fields.remove(name);
    fields
}

#[tokio::test]
async fn messages_of_both_versions_and_all_types_are_verified() {
    let receiver = Receiver::start().await;
    let service = &receiver.service;
    for version in ["1", "2"] {
        let notification = service.notification("{\"a\":\n\"ü\"}");
        let id = notification["MessageId"].as_str().unwrap().to_owned();
        let expected = SnsMessage::Notification { id, message: "{\"a\":\n\"ü\"}".to_owned() };
        for fields in [notification.clone(), with(&notification, "Subject", "Amazon SES Email Event Notification")] {
            assert_eq!(receiver.receive(&SnsServer::sign(fields, version)), Ok(expected.clone()), "{version}");
        }
        let fields = service.subscription_confirmation();
        let id = fields["MessageId"].as_str().unwrap().to_owned();
        let subscribe_url = fields["SubscribeURL"].as_str().unwrap().parse().unwrap();
        let confirmation = SnsMessage::SubscriptionConfirmation { id, subscribe_url };
        assert_eq!(receiver.receive(&SnsServer::sign(fields, version)), Ok(confirmation), "{version}");
        // Some implementations do not sign the token of this type.
        let end = service.unsubscribe_confirmation();
        let without_token = SnsServer::sign(without(&end, "Token"), version);
        for fields in [SnsServer::sign(end.clone(), version), with(&without_token, "Token", end["Token"].clone())] {
            assert_eq!(receiver.receive(&fields), Ok(SnsMessage::UnsubscribeConfirmation), "{version}");
        }
    }
}

#[tokio::test]
async fn every_signed_field_is_covered() {
    let receiver = Receiver::start().await;
    let fields = with(&receiver.service.notification("message"), "Subject", "subject");
    let signed = SnsServer::sign(fields, "2");
    receiver.receive(&signed).unwrap();
    for changed in [
        with(&signed, "Message", "message "),
        with(&signed, "MessageId", "another"),
        with(&signed, "Subject", "another"),
        with(&signed, "Timestamp", "2026-01-01T00:00:00.000Z"),
        with(&signed, "SubscribeURL", format!("https://{}/", receiver.service.host())),
        with(&signed, "Type", "UnsubscribeConfirmation"),
        with(&signed, "SignatureVersion", "1"),
        with(&signed, "SignatureVersion", "3"),
        with(&signed, "SignatureVersion", "02"),
        with(&signed, "SignatureVersion", ""),
        with(&signed, "Signature", ""),
        with(&signed, "Signature", "not base64"),
        with(&signed, "Signature", STANDARD.encode([0; 256])),
        with(&signed, "Signature", signed["Signature"].as_str().unwrap().replace('=', "")),
        without(&signed, "Subject"),
        with(&signed, "Subject", Value::Null),
    ] {
        assert_eq!(receiver.receive(&changed), Err(InvalidSnsMessage::Signature), "{changed:?}");
    }
    // Fields that are not signed have no meaning.
    for same in [with(&signed, "UnsubscribeURL", 1), with(&signed, "Another", json!({})), with(&signed, "Token", "x")] {
        receiver.receive(&same).unwrap();
    }
    let confirmation = SnsServer::sign(receiver.service.subscription_confirmation(), "1");
    for changed in [
        with(&confirmation, "Token", "another"),
        with(&confirmation, "SubscribeURL", format!("https://{}/?Action=Other", receiver.service.host())),
        with(&confirmation, "Type", "Notification"),
    ] {
        assert_eq!(receiver.receive(&changed), Err(InvalidSnsMessage::Signature), "{changed:?}");
    }
}

#[tokio::test]
async fn certificate_must_be_valid_and_belong_to_the_key() {
    let receiver = Receiver::start().await;
    let signed = SnsServer::sign(receiver.service.notification("message"), "2");
    for (fault, error) in [
        (SnsFault::Expired, InvalidSnsMessage::Expired),
        (SnsFault::NotYetValid, InvalidSnsMessage::Expired),
        (SnsFault::OtherKey, InvalidSnsMessage::Signature),
    ] {
        assert_eq!(receiver.receive_with(&signed, &certificate(Some(fault))), Err(error), "{fault:?}");
    }
    for bytes in ["", "x", "-----BEGIN CERTIFICATE-----"] {
        SnsCertificate::from_der(bytes.as_bytes()).unwrap_err();
    }
}

/// In the signed text, line breaks separate the fields. So another split of the same text would have the same
/// signature.
#[tokio::test]
async fn another_split_of_the_signed_text_is_rejected() {
    let receiver = Receiver::start().await;
    let fields = receiver.service.notification("a\nMessageId\nforged\nSubject\nb");
    let signed = SnsServer::sign(fields.clone(), "2");
    receiver.receive(&signed).unwrap();
    let id = fields["MessageId"].as_str().unwrap();
    let mut split = with(&signed, "Message", "a");
    split.insert("MessageId".to_owned(), "forged".into());
    split.insert("Subject".to_owned(), format!("b\nMessageId\n{id}").into());
    let error = receiver.receive(&split).unwrap_err();
    assert!(error.is_malformed(), "{error:?}");
}

#[tokio::test]
async fn checks_without_the_certificate_are_made_first() {
    let receiver = Receiver::start().await;
    let (host, notification) = (receiver.service.host(), receiver.service.notification("message"));
    let signed = SnsServer::sign(notification, "2");
    let confirmation = SnsServer::sign(receiver.service.subscription_confirmation(), "2");
    let read = |fields: &Fields| receiver.read(&Value::from(fields.clone()).to_string());
    for body in ["", " ", "{", "[]", "null", "17", "\"text\"", "{}", "\u{feff}{}", "Type=Notification"] {
        assert!(receiver.read(body).unwrap_err().is_malformed(), "{body:?}");
    }
    assert!(receiver.topic.read(b"{\"Type\":\"\xff\"}").unwrap_err().is_malformed());
    let valid = Value::from(signed.clone()).to_string();
    let twice = valid.replacen('{', "{\"Message\":\"x\",", 1);
    for body in [twice, format!("{valid} {valid}"), valid.replace("\"Type\"", "\"type\""), "[".repeat(100_000)] {
        assert!(receiver.read(&body).unwrap_err().is_malformed());
    }
    for name in
        ["Type", "MessageId", "TopicArn", "Message", "Timestamp", "SignatureVersion", "Signature", "SigningCertURL"]
    {
        for changed in [without(&signed, name), with(&signed, name, 1), with(&signed, name, Value::Null)] {
            assert!(read(&changed).unwrap_err().is_malformed(), "{name}");
        }
    }
    for changed in [
        with(&signed, "Type", "Another"),
        with(&signed, "MessageId", ""),
        with(&signed, "MessageId", "x".repeat(257)),
        with(&signed, "MessageId", "a\0b"),
        with(&signed, "Timestamp", "a\nb"),
        without(&confirmation, "SubscribeURL"),
        without(&confirmation, "Token"),
    ] {
        assert!(read(&changed).unwrap_err().is_malformed(), "{changed:?}");
    }
    for topic in ["", "arn:aws:sns:us-east-1:123456789012:mail2", &SNS_TOPIC.to_uppercase(), &format!("{SNS_TOPIC} ")] {
        assert_eq!(read(&with(&signed, "TopicArn", topic)), Err(InvalidSnsMessage::Topic), "{topic}");
    }
    for url in ["", "https://evil.example/SimpleNotificationService-0a.pem", &format!("https://{host}/other.pem")] {
        let changed = with(&signed, "SigningCertURL", url);
        assert_eq!(read(&changed), Err(InvalidSnsMessage::CertificateUrl), "{url}");
    }
    for url in ["", "https://evil.example/", &format!("http://{host}/"), &format!("https://{host}@evil.example/")] {
        for fields in [&confirmation, &signed] {
            let changed = with(fields, "SubscribeURL", url);
            assert_eq!(read(&changed), Err(InvalidSnsMessage::SubscribeUrl), "{url}");
        }
    }
}

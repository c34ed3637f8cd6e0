//! The notifications of Amazon SES ("Amazon SNS notification contents for Amazon SES"). A notification may lack fields,
//! and may have unknown ones.

use serde_json::Value;

use crate::model::{DeliveryEvent, DeliveryEventKind, EventRecipient};

/// The maximum number of recipients that are read from a notification. A mail has at most 50.
const MAX_RECIPIENTS: usize = 100;

/// Parses a notification: the relay's id of the mail, and the event. Returns `None` for a text that is not a
/// notification of a known type, and for a report that a mail is not spam.
pub(crate) fn parse(text: &str) -> Option<(String, DeliveryEvent)> {
    let notification: Value = serde_json::from_str(text).ok()?;
    // Notifications of SES event publishing have another field for the type.
    let kind = ["/notificationType", "/eventType"].into_iter().find_map(|path| text_at(&notification, path))?;
    let (kind, recipients) = match kind.as_str() {
        "Delivery" => (DeliveryEventKind::Delivered, delivered(&notification)),
        "Bounce" => bounced(&notification),
        // The recipient moved the mail out of the spam folder (RFC 6430).
        "Complaint" if feedback_type(&notification).is_some_and(|it| it.eq_ignore_ascii_case("not-spam")) => {
            return None;
        }
        "Complaint" => (DeliveryEventKind::Complained, complained(&notification)),
        _ => return None,
    };
    Some((text_at(&notification, "/mail/messageId")?, DeliveryEvent { kind, recipients }))
}

/// A delivery that names no recipients concerns all recipients of the mail.
fn delivered(notification: &Value) -> Vec<EventRecipient> {
    let recipient = |address: &Value| Some(EventRecipient { address: text_at(address, "")?, detail: None });
    let recipients = |path| items(notification, path).filter_map(recipient).collect::<Vec<_>>();
    let delivered = recipients("/delivery/recipients");
    if delivered.is_empty() { recipients("/mail/destination") } else { delivered }
}

fn bounced(notification: &Value) -> (DeliveryEventKind, Vec<EventRecipient>) {
    // Any other type than "Permanent" means that a later mail may be delivered.
    let permanent = text_at(notification, "/bounce/bounceType").as_deref() == Some("Permanent");
    let subtype = text_at(notification, "/bounce/bounceSubType");
    let recipient = |recipient: &Value| {
        let report = text_at(recipient, "/diagnosticCode").or_else(|| text_at(recipient, "/status"));
        Some(EventRecipient {
            address: text_at(recipient, "/emailAddress")?,
            detail: report.or_else(|| subtype.clone()),
        })
    };
    let recipients = items(notification, "/bounce/bouncedRecipients").filter_map(recipient).collect();
    (DeliveryEventKind::Bounced { permanent }, recipients)
}

fn complained(notification: &Value) -> Vec<EventRecipient> {
    let detail = feedback_type(notification);
    let recipient = |recipient: &Value| {
        Some(EventRecipient { address: text_at(recipient, "/emailAddress")?, detail: detail.clone() })
    };
    items(notification, "/complaint/complainedRecipients").filter_map(recipient).collect()
}

fn feedback_type(notification: &Value) -> Option<String> {
    text_at(notification, "/complaint/complaintFeedbackType")
}

/// Returns the items of the array at a path (RFC 6901).
fn items<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(path).and_then(Value::as_array).into_iter().flatten().take(MAX_RECIPIENTS)
}

/// Returns the text at a path (RFC 6901). Replaces U+0000, which Postgres does not store.
fn text_at(value: &Value, path: &str) -> Option<String> {
    Some(value.pointer(path)?.as_str()?.replace('\0', "\u{fffd}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn recipient(address: &str, detail: Option<&str>) -> EventRecipient {
        EventRecipient { address: address.to_owned(), detail: detail.map(str::to_owned) }
    }

    #[test]
    fn notifications_of_all_known_types_are_parsed() {
        let mail = json!({ "messageId": "0101", "destination": ["a@x.example", "b@x.example"], "headers": [] });
        let permanent = json!({ "bounceType": "Permanent", "bounceSubType": "General", "feedbackId": "f",
            "bouncedRecipients": [{ "emailAddress": "a@x.example", "action": "failed", "status": "5.1.1",
                "diagnosticCode": "smtp; 550 5.1.1 user unknown" }] });
        let transient = json!({ "bounceType": "Transient", "bounceSubType": "MailboxFull",
            "bouncedRecipients": [{ "emailAddress": "a@x.example" }, { "emailAddress": "b@x.example", "status": "4.2.2" }] });
        for name in ["notificationType", "eventType"] {
            for (kind, field, value, expected) in [
                (
                    "Delivery",
                    "delivery",
                    json!({ "recipients": ["a@x.example"], "smtpResponse": "250 ok" }),
                    DeliveryEvent {
                        kind: DeliveryEventKind::Delivered,
                        recipients: vec![recipient("a@x.example", None)],
                    },
                ),
                (
                    "Delivery",
                    "delivery",
                    json!({ "smtpResponse": "250 ok" }),
                    DeliveryEvent {
                        kind: DeliveryEventKind::Delivered,
                        recipients: vec![recipient("a@x.example", None), recipient("b@x.example", None)],
                    },
                ),
                (
                    "Bounce",
                    "bounce",
                    permanent.clone(),
                    DeliveryEvent {
                        kind: DeliveryEventKind::Bounced { permanent: true },
                        recipients: vec![recipient("a@x.example", Some("smtp; 550 5.1.1 user unknown"))],
                    },
                ),
                (
                    "Bounce",
                    "bounce",
                    transient.clone(),
                    DeliveryEvent {
                        kind: DeliveryEventKind::Bounced { permanent: false },
                        recipients: vec![
                            recipient("a@x.example", Some("MailboxFull")),
                            recipient("b@x.example", Some("4.2.2")),
                        ],
                    },
                ),
                (
                    "Complaint",
                    "complaint",
                    json!({ "complainedRecipients": [{ "emailAddress": "b@x.example" }], "complaintFeedbackType": "abuse" }),
                    DeliveryEvent {
                        kind: DeliveryEventKind::Complained,
                        recipients: vec![recipient("b@x.example", Some("abuse"))],
                    },
                ),
            ] {
                let text = json!({ name: kind, "mail": mail, field: value }).to_string();
                assert_eq!(parse(&text), Some(("0101".to_owned(), expected)), "{kind}");
            }
        }
    }

    #[test]
    fn other_texts_have_no_meaning() {
        let deep = "[".repeat(100_000);
        for text in [
            "",
            "Successfully validated SNS topic for Amazon SES event publishing.",
            "17",
            "[]",
            "{}",
            &deep,
            r#"{"notificationType":"Delivery"}"#,
            r#"{"notificationType":"Delivery","mail":{"messageId":17}}"#,
            r#"{"notificationType":"AmazonSnsSubscriptionSucceeded","message":"x"}"#,
            r#"{"eventType":"Open","mail":{"messageId":"1"},"open":{}}"#,
            r#"{"eventType":"Complaint","mail":{"messageId":"1"},"complaint":{"complainedRecipients":[{"emailAddress":"a@x.example"}],"complaintFeedbackType":"not-spam"}}"#,
            r#"{"notificationType":["Bounce"],"mail":{"messageId":"1"}}"#,
        ] {
            assert_eq!(parse(text), None, "{text:.80}");
        }
        let nul =
            r#"{"notificationType":"Delivery","mail":{"messageId":"a\u0000"},"delivery":{"recipients":["b\u0000"]}}"#;
        let (relay_id, event) = parse(nul).unwrap();
        assert_eq!((relay_id.as_str(), &event.recipients[..]), ("a\u{fffd}", &[recipient("b\u{fffd}", None)][..]));
        // Recipients of an unexpected form are skipped.
        let odd = r#"{"notificationType":"Bounce","mail":{"messageId":"1"},"bounce":{"bouncedRecipients":[17,{},{"emailAddress":null}]}}"#;
        let (_, event) = parse(odd).unwrap();
        assert_eq!(
            event,
            DeliveryEvent { kind: DeliveryEventKind::Bounced { permanent: false }, recipients: Vec::new() }
        );
    }
}

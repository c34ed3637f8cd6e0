//! The outcomes of relayed mail, as notifications of Amazon SES ("Amazon SNS notification contents for Amazon SES").

use serde_json::{Value, json};

use crate::smtp::ReceivedMail;
use crate::values::{new_id, now};

/// The outcome of a mail to one recipient. The part of the address before the `@` selects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Delivered,
    Bounced {
        permanent: bool,
    },
    /// The recipient receives the mail, and then reports it as spam.
    Complained,
}

impl Outcome {
    fn of(address: &str) -> Self {
        match address.split('@').next() {
            Some("bounce") => Self::Bounced { permanent: true },
            Some("softbounce") => Self::Bounced { permanent: false },
            Some("complain") => Self::Complained,
            _ => Self::Delivered,
        }
    }
}

/// Returns the notifications about a mail. Recipients with the same outcome share one.
pub(super) fn notifications(mail: &ReceivedMail) -> Vec<Value> {
    let recipients = |wanted: &[Outcome]| -> Vec<&str> {
        mail.to.iter().map(String::as_str).filter(|address| wanted.contains(&Outcome::of(address))).collect()
    };
    let (permanent, transient) = (Outcome::Bounced { permanent: true }, Outcome::Bounced { permanent: false });
    let events = [
        ("Delivery", "delivery", recipients(&[Outcome::Delivered, Outcome::Complained]), delivery as Details),
        ("Bounce", "bounce", recipients(&[permanent]), permanent_bounce),
        ("Bounce", "bounce", recipients(&[transient]), transient_bounce),
        ("Complaint", "complaint", recipients(&[Outcome::Complained]), complaint),
    ];
    let events = events.into_iter().filter(|(_, _, recipients, _)| !recipients.is_empty());
    events
        .map(|(kind, field, recipients, details)| {
            let sent = json!({
                "messageId": mail.id,
                "timestamp": timestamp(),
                "source": mail.from,
                "destination": mail.to,
            });
            json!({ "notificationType": kind, "mail": sent, field: details(&recipients) })
        })
        .collect()
}

type Details = fn(&[&str]) -> Value;

fn delivery(recipients: &[&str]) -> Value {
    json!({
        "timestamp": timestamp(),
        "processingTimeMillis": 42,
        "recipients": recipients,
        "smtpResponse": "250 2.6.0 Message received",
        "reportingMTA": "mail.example",
    })
}

fn permanent_bounce(recipients: &[&str]) -> Value {
    bounce(recipients, "Permanent", "General", "5.1.1", "smtp; 550 5.1.1 user unknown")
}

fn transient_bounce(recipients: &[&str]) -> Value {
    bounce(recipients, "Transient", "MailboxFull", "4.2.2", "smtp; 452 4.2.2 mailbox full")
}

fn bounce(recipients: &[&str], kind: &str, subtype: &str, status: &str, diagnostic: &str) -> Value {
    let recipient = |address: &&str| json!({ "emailAddress": address, "action": "failed", "status": status, "diagnosticCode": diagnostic });
    json!({
        "bounceType": kind,
        "bounceSubType": subtype,
        "bouncedRecipients": recipients.iter().map(recipient).collect::<Vec<_>>(),
        "timestamp": timestamp(),
        "feedbackId": new_id(),
        "reportingMTA": "dns; mail.example",
    })
}

fn complaint(recipients: &[&str]) -> Value {
    json!({
        "complainedRecipients": recipients.iter().map(|address| json!({ "emailAddress": address })).collect::<Vec<_>>(),
        "timestamp": timestamp(),
        "feedbackId": new_id(),
        "complaintFeedbackType": "abuse",
    })
}

pub(super) fn timestamp() -> String {
    now().format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

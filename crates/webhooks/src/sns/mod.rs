//! Messages of Amazon SNS over HTTPS ("Verifying the signatures of Amazon SNS messages", signature versions 1 and 2).
//!
//! A message names the URL of the certificate that signs it. So a receiver first calls [`SnsTopic::read`], which checks
//! this URL, then fetches the certificate from it, and then calls [`UnverifiedMessage::verify`].

mod address;
mod certificate;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{
    RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256, RsaParameters, UnparsedPublicKey,
};
use serde::Deserialize;
use url::Url;

pub use address::{CertificateHosts, InvalidHosts};
pub use certificate::{InvalidCertificate, SnsCertificate};

use crate::MAX_ID_LENGTH;

/// The topic whose messages a receiver accepts.
#[derive(Debug, Clone)]
pub struct SnsTopic {
    arn: String,
    hosts: CertificateHosts,
}

/// A message that is complete and belongs to the topic, and whose signature is not verified yet.
#[derive(Debug, Clone)]
pub struct UnverifiedMessage {
    fields: Fields,
    certificate_url: Url,
    subscribe_url: Option<Url>,
}

/// A message with a valid signature. `id` is the same in every delivery of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnsMessage {
    /// A message from a publisher.
    Notification {
        /// The id of the message.
        id: String,
        /// The publisher's text.
        message: String,
    },
    /// The topic asks whether it may send messages to this receiver.
    SubscriptionConfirmation {
        /// The id of the message.
        id: String,
        /// A GET of this URL confirms the subscription. It has the host of the certificate.
        subscribe_url: Url,
    },
    /// The topic has ended the subscription, and sends no further messages to this receiver.
    UnsubscribeConfirmation,
}

/// The reason why a message is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSnsMessage {
    /// The body is not the JSON of a message.
    #[error("the body is not a message of the notification service: {0}")]
    Malformed(&'static str),
    /// The message belongs to another topic.
    #[error("the message belongs to another topic")]
    Topic,
    /// The URL of the certificate does not belong to the notification service.
    #[error("the certificate's URL is not one of the notification service")]
    CertificateUrl,
    /// The URL that confirms the subscription does not have the host of the certificate.
    #[error("the subscription's URL does not have the host of the certificate")]
    SubscribeUrl,
    /// The certificate expired or is not valid yet.
    #[error("the certificate is not valid at this time")]
    Expired,
    /// The signature, or its version, is not valid.
    #[error("the message has no valid signature")]
    Signature,
}

impl InvalidSnsMessage {
    /// Returns whether the body is not a message at all. Other errors mean that the message is not authentic.
    #[must_use]
    pub const fn is_malformed(self) -> bool {
        matches!(self, Self::Malformed(_))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Kind {
    Notification,
    SubscriptionConfirmation,
    UnsubscribeConfirmation,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Notification => "Notification",
            Self::SubscriptionConfirmation => "SubscriptionConfirmation",
            Self::UnsubscribeConfirmation => "UnsubscribeConfirmation",
        }
    }
}

/// The fields of a message. Other fields are not signed and are ignored.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Fields {
    r#type: Kind,
    message_id: String,
    topic_arn: String,
    message: String,
    subject: Option<String>,
    timestamp: String,
    token: Option<String>,
    #[serde(rename = "SubscribeURL")]
    subscribe_url: Option<String>,
    signature_version: String,
    signature: String,
    #[serde(rename = "SigningCertURL")]
    signing_cert_url: String,
}

impl SnsTopic {
    /// Accepts the messages of the topic with this ARN, signed by a certificate of these hosts.
    #[must_use]
    pub const fn new(arn: String, hosts: CertificateHosts) -> Self {
        Self { arn, hosts }
    }

    /// Parses a message, and makes all checks that do not need the certificate.
    ///
    /// # Errors
    /// Returns [`InvalidSnsMessage`] for a malformed message, another topic, or a URL that is not allowed.
    pub fn read(&self, body: &[u8]) -> Result<UnverifiedMessage, InvalidSnsMessage> {
        let fields: Fields = serde_json::from_slice(body)
            .map_err(|_| InvalidSnsMessage::Malformed("it is not JSON, or a field is absent or has the wrong type"))?;
        fields.check()?;
        if fields.topic_arn != self.arn {
            return Err(InvalidSnsMessage::Topic);
        }
        let certificate_url = address::certificate_url(&fields.signing_cert_url, &self.hosts);
        let certificate_url = certificate_url.ok_or(InvalidSnsMessage::CertificateUrl)?;
        let subscribe_url = match &fields.subscribe_url {
            Some(text) => {
                let url = address::url_at_same_host(text, &fields.signing_cert_url);
                Some(url.ok_or(InvalidSnsMessage::SubscribeUrl)?)
            }
            None => None,
        };
        Ok(UnverifiedMessage { fields, certificate_url, subscribe_url })
    }
}

impl Fields {
    fn check(&self) -> Result<(), InvalidSnsMessage> {
        if self.message_id.is_empty() || self.message_id.len() > MAX_ID_LENGTH {
            return Err(InvalidSnsMessage::Malformed("its id has a wrong length"));
        }
        // The signed text separates the fields with line breaks. Only the first field, the message, may contain line
        // breaks. Otherwise, the same text could be split in another way, with the same signature.
        let single_lines = [
            Some(&self.message_id),
            Some(&self.topic_arn),
            Some(&self.timestamp),
            self.subject.as_ref(),
            self.token.as_ref(),
            self.subscribe_url.as_ref(),
        ];
        if single_lines.into_iter().flatten().any(|value| value.contains(char::is_control)) {
            return Err(InvalidSnsMessage::Malformed("a field contains a control character"));
        }
        let is_confirmation = self.r#type == Kind::SubscriptionConfirmation;
        if is_confirmation && (self.token.is_none() || self.subscribe_url.is_none()) {
            return Err(InvalidSnsMessage::Malformed("a confirmation has no token or URL"));
        }
        Ok(())
    }

    /// Returns the signed text: the name and the value of each present field, each followed by a line break.
    fn string_to_sign(&self, has_token: bool) -> String {
        let fields = [
            ("Message", Some(self.message.as_str())),
            ("MessageId", Some(&self.message_id)),
            ("Subject", self.subject.as_deref()),
            ("SubscribeURL", self.subscribe_url.as_deref()),
            ("Timestamp", Some(&self.timestamp)),
            ("Token", self.token.as_deref().filter(|_| has_token)),
            ("TopicArn", Some(&self.topic_arn)),
            ("Type", Some(self.r#type.name())),
        ];
        let present = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
        present.flat_map(|(name, value)| [name, "\n", value, "\n"]).collect()
    }
}

impl UnverifiedMessage {
    /// Returns the URL of the certificate that signed the message.
    #[must_use]
    pub const fn certificate_url(&self) -> &Url {
        &self.certificate_url
    }

    /// Verifies the signature with the certificate from [`Self::certificate_url`]. `now` is the Unix time in seconds;
    /// the certificate must be valid at this time. The age of the message is not limited, because SNS repeats a
    /// delivery for a long time. The receiver applies each id only once.
    ///
    /// # Errors
    /// Returns [`InvalidSnsMessage::Expired`] or [`InvalidSnsMessage::Signature`].
    pub fn verify(self, certificate: &SnsCertificate, now: i64) -> Result<SnsMessage, InvalidSnsMessage> {
        if !certificate.is_valid_at(now) {
            return Err(InvalidSnsMessage::Expired);
        }
        let Self { fields, subscribe_url, .. } = self;
        let algorithm: &'static RsaParameters = match fields.signature_version.as_str() {
            "1" => &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
            "2" => &RSA_PKCS1_2048_8192_SHA256,
            _ => return Err(InvalidSnsMessage::Signature),
        };
        let signature = STANDARD.decode(&fields.signature).map_err(|_| InvalidSnsMessage::Signature)?;
        let key = UnparsedPublicKey::new(algorithm, certificate.public_key());
        let is_valid = |has_token| key.verify(fields.string_to_sign(has_token).as_bytes(), &signature).is_ok();
        let is_valid = match fields.r#type {
            Kind::Notification => is_valid(false),
            Kind::SubscriptionConfirmation => is_valid(true),
            // Accepts both forms, because Amazon's own validators disagree on whether the token of this type is signed.
            // The message has no effect here.
            Kind::UnsubscribeConfirmation => is_valid(true) || is_valid(false),
        };
        match (fields.r#type, subscribe_url) {
            _ if !is_valid => Err(InvalidSnsMessage::Signature),
            (Kind::Notification, _) => Ok(SnsMessage::Notification { id: fields.message_id, message: fields.message }),
            (Kind::SubscriptionConfirmation, Some(subscribe_url)) => {
                Ok(SnsMessage::SubscriptionConfirmation { id: fields.message_id, subscribe_url })
            }
            (Kind::SubscriptionConfirmation, None) => Err(InvalidSnsMessage::SubscribeUrl),
            (Kind::UnsubscribeConfirmation, _) => Ok(SnsMessage::UnsubscribeConfirmation),
        }
    }
}

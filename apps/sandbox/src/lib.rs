//! Simulated external systems that use the real protocols: a code host, identity providers for the end users of apps, an
//! SMTP server, a notification service, a name server, an S3 server, a model-lending service, a payments provider, a
//! registrar, AI models, and a connected app with the page on which users approve it. Tests start single systems.
//! `svc-sandbox` runs all of them in one program, with web pages.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "for tests and development, where a panic reports the failure"
)]

mod ai;
mod api;
mod app;
mod certificate;
mod codehost;
pub mod config;
mod consent;
mod dns;
mod faults;
mod html;
mod http;
mod identity;
mod lending;
mod listener;
mod oauth;
mod pages;
mod payments;
mod program;
mod recent;
mod registrar;
mod rsa_key;
mod s3;
mod sessions;
mod smtp;
mod sns;
mod systems;
mod values;
mod webhooks;

pub use ai::{AI_KEY, AI_PATH, AiFault, AiServer};
pub use app::AppClient;
pub use certificate::Certificate;
pub use codehost::{CodeHostServer, Endpoint, OAuthClient};
pub use dns::{DnsFault, DnsServer, InvalidRecord};
pub use hickory_resolver::proto::rr::RecordType;
pub use identity::{
    IdTokenFault, IdentityClient, IdentityEndpoint, IdentityFault, IdentityProvider, IdentityServer, Person,
};
pub use lending::{LENDING_PATH, LENDING_SECRET};
pub use oauth::ResponseFault;
pub use payments::{
    CREDIT_PRODUCT, DOMAIN_PRODUCT, PAYMENTS_PATH, PAYMENTS_TOKEN, PAYMENTS_WEBHOOK_SECRET, PRO_PRODUCT, PaymentsFault,
    PaymentsServer, TOPUP_PRODUCT,
};
pub use program::Sandbox;
pub use registrar::{
    REGISTRAR_PATH, REGISTRAR_TOKEN, REGISTRAR_USER, RegistrarFault, RegistrarOperation, RegistrarOrder,
    RegistrarServer,
};
pub use s3::S3Server;
pub use smtp::{Encryption, ReceivedMail, SmtpFault, SmtpServer};
pub use sns::{SNS_TOPIC, SnsFault, SnsServer};
pub use webhooks::Delivery;

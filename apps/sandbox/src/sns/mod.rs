//! A notification service (Amazon SNS) with one topic. It signs messages, serves the certificate over HTTPS, asks for
//! the confirmation of its subscription, and reports the outcomes of relayed mail.

mod events;
mod page;
mod signer;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::certificate::Certificate;
use crate::http::{self, Request, Response};
use crate::recent::Recent;
use crate::sessions::random_text;
use crate::smtp::SmtpServer;
use crate::values::new_id;
use crate::webhooks::{Delivery, Headers, Webhooks};
use signer::Validity;

/// The topic.
pub const SNS_TOPIC: &str = "arn:aws:sns:us-east-1:123456789012:mail";
/// The beginning and the end of the path of a certificate.
const CERTIFICATE_PATH: (&str, &str) = ("/SimpleNotificationService-", ".pem");

/// A fault of the certificate host, and of the confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnsFault {
    /// Responds with 503.
    Unavailable,
    /// Responds with 200 and a page.
    Html,
    /// Redirects to another path, which has the certificate.
    Redirect,
    /// The certificate is followed by 64 KiB.
    Large,
    /// Does not respond while the fault lasts.
    Hang,
    /// The certificate expired.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// The certificate belongs to another key.
    OtherKey,
    /// Responds with 500 to the confirmation of a subscription.
    Confirmation,
}

/// The faults with their names on the page.
const FAULTS: [(&str, Option<SnsFault>); 10] = [
    ("none", None),
    ("unavailable", Some(SnsFault::Unavailable)),
    ("html", Some(SnsFault::Html)),
    ("redirect", Some(SnsFault::Redirect)),
    ("large certificate", Some(SnsFault::Large)),
    ("hang", Some(SnsFault::Hang)),
    ("expired certificate", Some(SnsFault::Expired)),
    ("certificate not valid yet", Some(SnsFault::NotYetValid)),
    ("certificate of another key", Some(SnsFault::OtherKey)),
    ("failed confirmation", Some(SnsFault::Confirmation)),
];

/// The state of the subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subscription {
    Pending,
    Confirmed,
    Ended,
}

/// The notification service.
#[derive(Debug)]
pub struct SnsServer {
    service: Arc<Service>,
    /// Aborts the tasks when the server is dropped.
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct Service {
    certificate: Certificate,
    /// The host and the port of the listener.
    host: String,
    state: Mutex<State>,
    subscription: watch::Sender<Subscription>,
    fault: watch::Sender<Option<SnsFault>>,
    webhooks: Webhooks,
}

#[derive(Debug)]
struct State {
    /// The version of the signatures of later messages.
    version: &'static str,
    /// The secret of the subscription's confirmation.
    token: String,
    requests: Recent<String>,
}

impl SnsServer {
    /// Starts a service on a free port. It sends messages to this URL.
    ///
    /// # Panics
    /// Panics if no port is free.
    pub async fn start(hook_url: Option<String>) -> Self {
        Self::start_on((Ipv4Addr::LOCALHOST, 0).into(), hook_url).await.unwrap()
    }

    /// Starts a service on this address.
    ///
    /// # Errors
    /// Returns an error if the address is in use or not local.
    pub async fn start_on(address: SocketAddr, hook_url: Option<String>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let state = State { version: "2", token: random_text(), requests: Recent::default() };
        let (subscription, current) = watch::channel(Subscription::Pending);
        let service = Arc::new(Service {
            certificate: Certificate::generate_with_known_authority(),
            host: format!("localhost:{}", listener.local_addr()?.port()),
            state: Mutex::new(state),
            subscription,
            fault: watch::Sender::new(None),
            webhooks: Webhooks::start(
                hook_url,
                move |delivery| headers(*current.borrow(), delivery),
                // The real service does not retry after any other status.
                |status| status == 429 || status >= 500,
            ),
        });
        let (served, acceptor) = (Arc::clone(&service), service.certificate.acceptor().clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(http::serve_tls(listener, acceptor, move |request| {
            let service = Arc::clone(&served);
            async move { service.respond(&request).await }
        }));
        Ok(Self { service, tasks: Mutex::new(tasks) })
    }

    /// Returns the host and the port of the certificates.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.service.host
    }

    /// Returns the certificate authority that a client must trust, as PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.service.certificate.authority()
    }

    /// Returns the URL of the certificate.
    #[must_use]
    pub fn certificate_url(&self) -> String {
        self.service.certificate_url()
    }

    /// Returns the unsigned fields of a notification with this message.
    #[must_use]
    pub fn notification(&self, message: &str) -> Map<String, Value> {
        self.service.fields("Notification", message)
    }

    /// Returns the unsigned fields of the message that asks for the confirmation of the subscription.
    #[must_use]
    pub fn subscription_confirmation(&self) -> Map<String, Value> {
        self.service.confirmation("SubscriptionConfirmation")
    }

    /// Returns the unsigned fields of the message about the end of the subscription.
    #[must_use]
    pub fn unsubscribe_confirmation(&self) -> Map<String, Value> {
        self.service.confirmation("UnsubscribeConfirmation")
    }

    /// Signs a message with this version: `1` or `2`.
    ///
    /// # Panics
    /// Panics if the message has no type.
    #[must_use]
    pub fn sign(mut fields: Map<String, Value>, version: &str) -> Map<String, Value> {
        let signature = signer::sign(&fields, version);
        fields.extend([("SignatureVersion".to_owned(), version.into()), ("Signature".to_owned(), signature.into())]);
        fields
    }

    /// Returns the certificate as PEM, with a fault that concerns its content.
    #[must_use]
    pub fn signing_certificate(fault: Option<SnsFault>) -> String {
        match fault {
            Some(SnsFault::Expired) => signer::certificate(Validity::Expired),
            Some(SnsFault::NotYetValid) => signer::certificate(Validity::NotYetValid),
            Some(SnsFault::OtherKey) => signer::other_certificate(),
            Some(SnsFault::Large) => signer::certificate(Validity::Valid) + &"\n".repeat(64 << 10),
            _ => signer::certificate(Validity::Valid),
        }
    }

    /// Asks for the confirmation of the subscription.
    pub fn subscribe(&self) {
        self.service.subscribe();
    }

    /// Returns whether the subscription is confirmed.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        *self.service.subscription.borrow() == Subscription::Confirmed
    }

    /// Reports the outcomes of the mails that this server receives from now on. Asks for the confirmation of the
    /// subscription first if it is pending.
    ///
    /// # Panics
    /// Does not panic.
    pub fn report_outcomes(&self, smtp: &SmtpServer) {
        let (service, mut received) = (Arc::clone(&self.service), smtp.subscribe());
        let mut reported = received.borrow_and_update().added();
        self.tasks.lock().unwrap().spawn(async move {
            while received.changed().await.is_ok() {
                let mails: Vec<_> = {
                    let kept = received.borrow_and_update();
                    let new = kept.numbered().filter(|(number, _)| *number >= reported);
                    let mails = new.map(|(_, mail)| mail.clone()).collect();
                    reported = kept.added();
                    mails
                };
                if *service.subscription.borrow() == Subscription::Pending {
                    service.subscribe();
                }
                for notification in mails.iter().flat_map(events::notifications) {
                    service.send(service.fields("Notification", &notification.to_string()));
                }
            }
        });
    }

    /// Injects a fault, or removes it.
    pub fn inject(&self, fault: Option<SnsFault>) {
        self.service.fault.send_replace(fault);
    }

    /// Returns the paths and the queries of the last requests to the service.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.service.state().requests.iter().cloned().collect()
    }

    /// Returns the messages so far, oldest first.
    #[must_use]
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.service.webhooks.deliveries()
    }

    pub(crate) fn page(&self, request: &Request) -> Response {
        self.service.page(request)
    }
}

impl Service {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn certificate_url(&self) -> String {
        let (start, end) = CERTIFICATE_PATH;
        format!("https://{}{start}01d088a6f77103d0fe307c0069e40ed6{end}", self.host)
    }

    fn fields(&self, kind: &str, message: &str) -> Map<String, Value> {
        let fields = json!({
            "Type": kind,
            "MessageId": new_id(),
            "TopicArn": SNS_TOPIC,
            "Message": message,
            "Timestamp": events::timestamp(),
            "SigningCertURL": self.certificate_url(),
            "UnsubscribeURL": format!("https://{}/?Action=Unsubscribe&SubscriptionArn={SNS_TOPIC}:1", self.host),
        });
        fields.as_object().unwrap().clone()
    }

    fn confirmation(&self, kind: &str) -> Map<String, Value> {
        let token = self.state().token.clone();
        let query = format!("Action=ConfirmSubscription&TopicArn={SNS_TOPIC}&Token={token}");
        let mut fields = self.fields(kind, &format!("You have chosen to subscribe to the topic {SNS_TOPIC}."));
        fields.remove("UnsubscribeURL");
        fields.insert("Token".to_owned(), token.into());
        fields.insert("SubscribeURL".to_owned(), format!("https://{}/?{query}", self.host).into());
        fields
    }

    fn subscribe(&self) {
        self.send(self.confirmation("SubscriptionConfirmation"));
    }

    /// Signs and sends a message.
    fn send(&self, fields: Map<String, Value>) {
        let version = self.state().version;
        let fields = SnsServer::sign(fields, version);
        let text = |name: &str| fields[name].as_str().unwrap().to_owned();
        self.webhooks.send(text("MessageId"), &text("Type"), Value::from(fields.clone()).to_string());
    }

    /// Responds to a request for a certificate or a confirmation. Returns `None` to close the connection.
    async fn respond(&self, request: &Request) -> Option<Response> {
        self.state().requests.push(format!("{}?{}", request.path, request.query));
        let mut faults = self.fault.subscribe();
        let fault = *faults.borrow_and_update();
        match fault {
            Some(SnsFault::Hang) => {
                faults.wait_for(|fault| *fault != Some(SnsFault::Hang)).await.unwrap();
                return None;
            }
            Some(SnsFault::Unavailable) => return Some(Response::new(503, "text/plain", "out of service")),
            Some(SnsFault::Html) => {
                return Some(Response::new(200, "text/html", "<!DOCTYPE html><title>Sign in</title>"));
            }
            Some(SnsFault::Redirect) if !request.path.contains("-00.") => {
                let (start, end) = CERTIFICATE_PATH;
                return Some(Response::redirect(format!("{start}00{end}")));
            }
            _ => {}
        }
        let (start, end) = CERTIFICATE_PATH;
        if request.path.starts_with(start) && request.path.ends_with(end) {
            return Some(Response::new(200, "application/x-pem-file", SnsServer::signing_certificate(fault)));
        }
        if request.parameter("Action") == "ConfirmSubscription" {
            return Some(self.confirm(request.parameter("Token"), fault));
        }
        Some(Response::new(404, "text/plain", "no such resource"))
    }

    fn confirm(&self, token: &str, fault: Option<SnsFault>) -> Response {
        if fault == Some(SnsFault::Confirmation) {
            return Response::new(500, "text/plain", "internal failure");
        }
        if token != self.state().token {
            return Response::new(400, "text/plain", "invalid token");
        }
        self.subscription.send_replace(Subscription::Confirmed);
        let arn = format!("{SNS_TOPIC}:{}", new_id());
        Response::json(&json!({ "ConfirmSubscriptionResponse": { "SubscriptionArn": arn } }))
    }
}

/// Returns the headers of a message, or the reason to drop it: like the real service, delivers notifications only with
/// a confirmed subscription.
fn headers(subscription: Subscription, delivery: &Delivery) -> Result<Headers, &'static str> {
    if delivery.event == "Notification" && subscription != Subscription::Confirmed {
        return Err("dropped: the subscription is not confirmed");
    }
    Ok(vec![
        ("x-amz-sns-message-type", delivery.event.clone()),
        ("x-amz-sns-message-id", delivery.id.clone()),
        ("x-amz-sns-topic-arn", SNS_TOPIC.to_owned()),
        ("content-type", "text/plain; charset=UTF-8".to_owned()),
    ])
}

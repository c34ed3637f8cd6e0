//! The mail of the projects.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use actix_web::web::{Bytes, Data, Json, Path, PayloadConfig, Query, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, web};
use protocol::{
    DeliveryResult, MailClaim, MailDelivered, MailDeliveries, MailDelivery, MailRefusal, MailSubmission, MailSubmitted,
    RefusedMail,
};
use serde::Deserialize;
use tokio::time::{sleep, timeout};

use super::{ControlPlane, Shared, is_node};
use crate::timeout::TIMEOUT;

const MAX_BATCH: usize = 20;
const MAX_CLAIMS_OF_PROJECT: usize = 5;
const LEASE: Duration = Duration::from_secs(300);

/// The submitted and the received mail.
#[derive(Default)]
pub struct Mail {
    submissions: Vec<MailSubmission>,
    refusal: Option<MailRefusal>,
    /// How many of the next submissions are accepted without a response.
    lost_responses: usize,
    received: Vec<Received>,
    /// The number of requests for received mail.
    polls: usize,
    /// The mails that the node had in progress at its last request for received mail.
    in_progress: Vec<String>,
    /// How many of the next results fail with an error.
    failing_results: usize,
}

/// A received mail.
struct Received {
    mail: MailDelivery,
    raw: Bytes,
    /// The time at which the mail is due again.
    due_at: Option<Instant>,
    result: Option<MailDelivered>,
}

impl ControlPlane {
    /// Refuses submitted mail from now on; queues it if `refusal` is `None`.
    pub fn refuse_mail(&self, refusal: Option<MailRefusal>) {
        self.state.table.lock().unwrap().mail.refusal = refusal;
    }

    /// Loses the responses to the next submissions.
    pub fn lose_mail_responses(&self, count: usize) {
        self.state.table.lock().unwrap().mail.lost_responses = count;
    }

    /// Returns all submissions, also repeated ones.
    pub fn submitted_mail(&self) -> Vec<MailSubmission> {
        self.state.table.lock().unwrap().mail.submissions.clone()
    }

    /// Receives a mail for a project. Returns its id.
    pub fn receive_mail(&self, project: &str, raw: impl Into<Bytes>) -> String {
        self.receive_mail_from("ada@example.com", project, raw)
    }

    /// Like [`Self::receive_mail`], with another sender.
    pub fn receive_mail_from(&self, from: &str, project: &str, raw: impl Into<Bytes>) -> String {
        let raw = raw.into();
        self.receive(from, project, raw.len(), raw)
    }

    /// Like [`Self::receive_mail`], but states another size than that of the content.
    pub fn receive_mail_of_size(&self, size: usize, project: &str, raw: Bytes) -> String {
        self.receive("ada@example.com", project, size, raw)
    }

    fn receive(&self, from: &str, project: &str, size: usize, raw: Bytes) -> String {
        let mail = &mut self.state.table.lock().unwrap().mail;
        let id = format!("mail_{:026}", mail.received.len());
        let delivery = MailDelivery {
            id: id.clone(),
            project: project.to_owned(),
            attempt: 0,
            from: from.to_owned(),
            to: vec![format!("hello@{project}.ada.example"), format!("bye@{project}.ada.example")],
            size_bytes: size as u64,
        };
        mail.received.push(Received { mail: delivery, raw, due_at: Some(Instant::now()), result: None });
        id
    }

    /// Makes a mail due again, as after the end of its lease or after a delay.
    pub fn redeliver_mail(&self, id: &str) {
        let mut table = self.state.table.lock().unwrap();
        let received = table.mail.find(id).unwrap();
        (received.due_at, received.result) = (Some(Instant::now()), None);
    }

    /// Returns the number of times that a mail was given out.
    pub fn mail_attempts(&self, id: &str) -> u32 {
        self.state.table.lock().unwrap().mail.find(id).unwrap().mail.attempt
    }

    /// Responds with an error to this number of the next results.
    pub fn fail_mail_results(&self, count: usize) {
        self.state.table.lock().unwrap().mail.failing_results = count;
    }

    /// Returns the number of requests for received mail.
    pub fn mail_polls(&self) -> usize {
        self.state.table.lock().unwrap().mail.polls
    }

    /// Returns the mails that the node had in progress at its last request for received mail.
    pub fn mail_in_progress(&self) -> Vec<String> {
        let mut in_progress = self.state.table.lock().unwrap().mail.in_progress.clone();
        in_progress.sort();
        in_progress
    }

    /// Waits for the result of a mail.
    pub async fn mail_result(&self, id: &str) -> DeliveryResult {
        let result = || self.state.table.lock().unwrap().mail.find(id)?.result.clone();
        let result = async {
            loop {
                if let Some(delivered) = result() {
                    return delivered.into_result();
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        let result = timeout(TIMEOUT, result).await;
        assert!(result.is_ok(), "timed out waiting for the result of {id}");
        result.unwrap()
    }
}

impl Mail {
    fn find(&mut self, id: &str) -> Option<&mut Received> {
        self.received.iter_mut().find(|received| received.mail.id == id)
    }

    /// Claims the mail that is due.
    fn claim(&mut self) -> Vec<MailDelivery> {
        let now = Instant::now();
        let mut claimed = HashMap::<String, usize>::new();
        for received in self.received.iter().filter(|received| received.due_at.is_some_and(|due_at| due_at > now)) {
            *claimed.entry(received.mail.project.clone()).or_default() += 1;
        }
        let due = self.received.iter_mut().filter(|received| received.due_at.is_some_and(|due_at| due_at <= now));
        let due = due.filter(|received| {
            let claimed = claimed.entry(received.mail.project.clone()).or_default();
            *claimed += 1;
            *claimed <= MAX_CLAIMS_OF_PROJECT
        });
        let claim = |received: &mut Received| {
            received.due_at = Some(now + LEASE);
            received.mail.attempt += 1;
            received.mail.clone()
        };
        due.take(MAX_BATCH).map(claim).collect()
    }
}

pub fn routes(config: &mut ServiceConfig) {
    let submissions = web::resource("/internal/v1/mail/submissions").app_data(PayloadConfig::new(16 << 20));
    config
        .service(submissions.route(web::post().to(submit)))
        .route("/internal/v1/mail/deliveries", web::post().to(claim))
        .route("/internal/v1/mail/deliveries/{id}", web::post().to(record_result))
        .route("/internal/v1/mail/messages/{id}/raw", web::get().to(raw));
}

async fn submit(request: HttpRequest, body: Bytes, state: Data<Shared>) -> HttpResponse {
    let mut table = state.table.lock().unwrap();
    if !is_node(&request, &table) {
        return HttpResponse::Unauthorized().finish();
    }
    let Ok(submission) = serde_json::from_slice(&body) else { return HttpResponse::BadRequest().finish() };
    let mail = &mut table.mail;
    mail.submissions.push(submission);
    if mail.lost_responses > 0 {
        mail.lost_responses -= 1;
        return HttpResponse::BadGateway().finish();
    }
    HttpResponse::Ok().json(mail.refusal.map_or(MailSubmitted::Queued, |code| {
        MailSubmitted::Refused(RefusedMail { code, message: "The reason of the test.".to_owned() })
    }))
}

#[derive(Deserialize)]
struct Poll {
    wait: u64,
}

async fn claim(request: HttpRequest, poll: Query<Poll>, claim: Json<MailClaim>, state: Data<Shared>) -> HttpResponse {
    let deadline = Instant::now() + Duration::from_secs(poll.wait);
    {
        let mail = &mut state.table.lock().unwrap().mail;
        mail.polls += 1;
        mail.in_progress = claim.into_inner().in_progress;
    }
    loop {
        let deliveries = {
            let mut table = state.table.lock().unwrap();
            if !is_node(&request, &table) {
                return HttpResponse::Unauthorized().finish();
            }
            table.mail.claim()
        };
        if !deliveries.is_empty() || Instant::now() >= deadline {
            return HttpResponse::Ok().json(MailDeliveries { deliveries });
        }
        sleep(Duration::from_millis(10)).await;
    }
}

async fn raw(request: HttpRequest, id: Path<String>, state: Data<Shared>) -> HttpResponse {
    let mut table = state.table.lock().unwrap();
    if !is_node(&request, &table) {
        return HttpResponse::Unauthorized().finish();
    }
    match table.mail.find(&id) {
        Some(received) => HttpResponse::Ok().content_type("message/rfc822").body(received.raw.clone()),
        None => HttpResponse::NotFound().finish(),
    }
}

async fn record_result(
    request: HttpRequest,
    id: Path<String>,
    delivered: Json<MailDelivered>,
    state: Data<Shared>,
) -> HttpResponse {
    let mut table = state.table.lock().unwrap();
    if !is_node(&request, &table) {
        return HttpResponse::Unauthorized().finish();
    }
    if table.mail.failing_results > 0 {
        table.mail.failing_results -= 1;
        return HttpResponse::InternalServerError().finish();
    }
    let Some(received) = table.mail.find(&id) else { return HttpResponse::NotFound().finish() };
    if delivered.attempt == received.mail.attempt {
        (received.due_at, received.result) = (None, Some(delivered.into_inner()));
    }
    HttpResponse::NoContent().finish()
}

//! The provider's webhooks. They have the signatures of Standard Webhooks, are delivered in order, and are retried.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::PAYMENTS_WEBHOOK_SECRET;
use super::state::time;
use crate::api::Api;
use crate::values::{new_id, now};

/// The pauses between the attempts of a delivery.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];

/// A webhook with its last response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub id: String,
    /// The type of the event.
    pub event: String,
    pub body: String,
    pub attempts: usize,
    /// The status of the last response. `None` before the first response.
    pub status: Option<u16>,
    /// The body of the last response.
    pub response: String,
}

/// The webhooks, and the task that delivers them.
#[derive(Debug)]
pub(super) struct Webhooks {
    queue: Arc<Queue>,
    task: Option<AbortHandle>,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    deliveries: Vec<Delivery>,
    /// The indexes of the deliveries that are due.
    due: VecDeque<usize>,
    is_held: bool,
}

impl Webhooks {
    /// Starts to deliver webhooks to a URL. Without a URL, the page only shows them.
    pub fn start(url: Option<String>) -> Self {
        let queue = Arc::new(Queue::default());
        let task = url.map(|url| {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move { queue.deliver(&Api::new(""), &url).await }).abort_handle()
        });
        Self { queue, task }
    }

    pub fn send(&self, event: &str, data: &Value) {
        let body = json!({ "type": event, "timestamp": time(now()), "data": data }).to_string();
        let mut state = self.queue.state();
        let id = format!("msg_{}", new_id());
        let (attempts, status, response) = (0, None, String::new());
        state.deliveries.push(Delivery { id, event: event.to_owned(), body, attempts, status, response });
        let index = state.deliveries.len() - 1;
        state.due.push_back(index);
        drop(state);
        self.queue.changed.notify_one();
    }

    pub fn deliveries(&self) -> Vec<Delivery> {
        self.queue.state().deliveries.clone()
    }

    pub fn hold(&self) {
        self.queue.state().is_held = true;
    }

    pub fn is_held(&self) -> bool {
        self.queue.state().is_held
    }

    pub fn release(&self, reversed: bool) {
        let mut state = self.queue.state();
        state.is_held = false;
        if reversed {
            state.due = state.due.iter().rev().copied().collect();
        }
        drop(state);
        self.queue.changed.notify_one();
    }

    pub fn redeliver(&self, id: &str) {
        let mut state = self.queue.state();
        let found = state.deliveries.iter().position(|delivery| delivery.id == id);
        state.due.extend(found);
        drop(state);
        self.queue.changed.notify_one();
    }
}

impl Drop for Webhooks {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap()
    }

    /// Delivers the due webhooks in order. If the last attempt of a webhook fails, continues with the next one.
    async fn deliver(&self, api: &Api, url: &str) {
        loop {
            let next = {
                let mut state = self.state();
                let due = if state.is_held { None } else { state.due.pop_front() };
                due.map(|index| (index, state.deliveries[index].clone()))
            };
            let Some((index, delivery)) = next else {
                self.changed.notified().await;
                continue;
            };
            for pause in PAUSES.into_iter().map(Some).chain([None]) {
                let (status, response) = attempt(api, url, &delivery).await;
                {
                    let stored = &mut self.state().deliveries[index];
                    (stored.attempts, stored.status, stored.response) = (stored.attempts + 1, status, response);
                }
                match pause {
                    Some(pause) if !status.is_some_and(|status| (200..300).contains(&status)) => {
                        tokio::time::sleep(pause).await;
                    }
                    _ => break,
                }
            }
        }
    }
}

async fn attempt(api: &Api, url: &str, delivery: &Delivery) -> (Option<u16>, String) {
    let timestamp = now().timestamp().to_string();
    let key = hmac::Key::new(hmac::HMAC_SHA256, PAYMENTS_WEBHOOK_SECRET.as_bytes());
    let tag = hmac::sign(&key, format!("{}.{timestamp}.{}", delivery.id, delivery.body).as_bytes());
    let signature = format!("v1,{}", STANDARD.encode(tag));
    let headers = [
        ("webhook-id", delivery.id.as_str()),
        ("webhook-timestamp", &timestamp),
        ("webhook-signature", &signature),
        ("content-type", "application/json"),
    ];
    match api.post_bytes(url, &headers, delivery.body.clone().into_bytes()).await {
        Ok((status, body)) => (Some(status), body),
        Err(error) => (None, error.to_string()),
    }
}

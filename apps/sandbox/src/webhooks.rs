//! The webhooks of a system. They are delivered in order and are retried.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::api::Api;
use crate::html::Html;
use crate::recent::Recent;

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

/// The headers of an attempt to deliver a webhook.
pub(crate) type Headers = Vec<(&'static str, String)>;

/// The webhooks, and the task that delivers them.
#[derive(Debug)]
pub(crate) struct Webhooks {
    queue: Arc<Queue>,
    task: Option<AbortHandle>,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Notify,
}

#[derive(Debug)]
struct QueueState {
    deliveries: Recent<Delivery>,
    /// The deliveries that are due, as they were when they were added.
    due: VecDeque<Delivery>,
    is_held: bool,
}

impl Webhooks {
    /// Starts to deliver webhooks to a URL. Without a URL, the page only shows them. `headers` returns the headers of
    /// an attempt, or the reason to drop the webhook. A webhook without a response is retried, and so is one whose
    /// response has a status for which `should_retry` returns true.
    pub fn start(
        url: Option<String>,
        headers: impl Fn(&Delivery) -> Result<Headers, &'static str> + Send + 'static,
        should_retry: fn(u16) -> bool,
    ) -> Self {
        let state = QueueState { deliveries: Recent::default(), due: VecDeque::new(), is_held: false };
        let queue = Arc::new(Queue { state: Mutex::new(state), changed: Notify::new() });
        let task = url.map(|url| {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move { queue.deliver(&Api::new(""), &url, headers, should_retry).await }).abort_handle()
        });
        Self { queue, task }
    }

    /// Adds a webhook to the deliveries.
    pub fn send(&self, id: String, event: &str, body: String) {
        let (attempts, status, response) = (0, None, String::new());
        let delivery = Delivery { id, event: event.to_owned(), body, attempts, status, response };
        let mut state = self.queue.state();
        state.deliveries.push(delivery.clone());
        self.enqueue(state, Some(delivery));
    }

    /// Makes a delivery due, if the service has a URL.
    fn enqueue(&self, mut state: MutexGuard<'_, QueueState>, delivery: Option<Delivery>) {
        if self.task.is_some() {
            state.due.extend(delivery);
        }
        drop(state);
        self.queue.changed.notify_one();
    }

    /// Returns the newest webhooks, oldest first.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.queue.state().deliveries.iter().cloned().collect()
    }

    /// Delivers nothing until [`Self::release`].
    pub fn hold(&self) {
        self.queue.state().is_held = true;
    }

    pub fn is_held(&self) -> bool {
        self.queue.state().is_held
    }

    /// Ends [`Self::hold`]. `reversed` delivers the due webhooks in the reverse order.
    pub fn release(&self, reversed: bool) {
        let mut state = self.queue.state();
        state.is_held = false;
        if reversed {
            state.due.make_contiguous().reverse();
        }
        drop(state);
        self.queue.changed.notify_one();
    }

    /// Delivers a webhook again.
    pub fn redeliver(&self, id: &str) {
        let state = self.queue.state();
        let found = state.deliveries.iter().find(|delivery| delivery.id == id).cloned();
        self.enqueue(state, found);
    }

    /// Adds a table of the webhooks to a page.
    pub fn add_table(&self, html: &mut Html) {
        html.raw("<table><tr><th>Event</th><th>Attempts</th><th>Response</th><th></th></tr>");
        for delivery in self.queue.state().deliveries.iter().rev() {
            let status = delivery.status.map_or_else(String::new, |status| status.to_string());
            html.raw("<tr><td>").text(&delivery.event).raw("</td><td>").text(&delivery.attempts.to_string());
            html.raw("</td><td>").text(&format!("{status} {}", delivery.response)).raw("</td><td><form method=post>");
            html.raw("<button name=redeliver value=\"").text(&delivery.id);
            html.raw("\">Deliver again</button></form></td></tr>");
        }
        html.raw("</table>");
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

    /// Changes a delivery, unless it is no longer kept.
    fn update(&self, id: &str, change: impl FnOnce(&mut Delivery)) {
        if let Some(delivery) = self.state().deliveries.iter_mut().find(|delivery| delivery.id == id) {
            change(delivery);
        }
    }

    /// Delivers the due webhooks in order. If the last attempt of a webhook fails, continues with the next one.
    async fn deliver(
        &self,
        api: &Api,
        url: &str,
        headers: impl Fn(&Delivery) -> Result<Headers, &'static str>,
        should_retry: fn(u16) -> bool,
    ) {
        loop {
            let next = {
                let mut state = self.state();
                if state.is_held { None } else { state.due.pop_front() }
            };
            let Some(delivery) = next else {
                self.changed.notified().await;
                continue;
            };
            for pause in PAUSES.into_iter().map(Some).chain([None]) {
                let headers = match headers(&delivery) {
                    Ok(headers) => headers,
                    Err(reason) => {
                        self.update(&delivery.id, |stored| reason.clone_into(&mut stored.response));
                        break;
                    }
                };
                let (status, response) = attempt(api, url, headers, &delivery.body).await;
                self.update(&delivery.id, |stored| {
                    (stored.attempts, stored.status, stored.response) = (stored.attempts + 1, status, response);
                });
                match pause {
                    Some(pause) if status.is_none_or(should_retry) => tokio::time::sleep(pause).await,
                    _ => break,
                }
            }
        }
    }
}

async fn attempt(api: &Api, url: &str, headers: Headers, body: &str) -> (Option<u16>, String) {
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    match api.post_bytes(url, &headers, body.as_bytes().to_vec()).await {
        Ok((status, body)) => (Some(status), body),
        Err(error) => (None, error.to_string()),
    }
}

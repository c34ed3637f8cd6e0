//! The webhooks of a system. They are delivered in order and are retried.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::api::Api;
use crate::html::Html;

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
    /// Starts to deliver webhooks to a URL. Without a URL, the page only shows them. `headers` returns the headers of
    /// an attempt, or the reason to drop the webhook. A webhook without a response is repeated, and so is one whose
    /// response has a status for which `is_repeated` returns true.
    pub fn start(
        url: Option<String>,
        headers: impl Fn(&Delivery) -> Result<Headers, &'static str> + Send + Sync + 'static,
        is_repeated: fn(u16) -> bool,
    ) -> Self {
        let queue = Arc::new(Queue::default());
        let task = url.map(|url| {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move { queue.deliver(&Api::new(""), &url, headers, is_repeated).await }).abort_handle()
        });
        Self { queue, task }
    }

    /// Adds a webhook to the deliveries.
    pub fn send(&self, id: String, event: &str, body: String) {
        let mut state = self.queue.state();
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
            state.due = state.due.iter().rev().copied().collect();
        }
        drop(state);
        self.queue.changed.notify_one();
    }

    /// Delivers a webhook again.
    pub fn redeliver(&self, id: &str) {
        let mut state = self.queue.state();
        let found = state.deliveries.iter().position(|delivery| delivery.id == id);
        state.due.extend(found);
        drop(state);
        self.queue.changed.notify_one();
    }

    /// Adds a table of the webhooks to a page.
    pub fn add_table(&self, html: &mut Html) {
        html.raw("<table><tr><th>Event</th><th>Attempts</th><th>Response</th><th></th></tr>");
        for delivery in self.deliveries().iter().rev() {
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

    /// Delivers the due webhooks in order. If the last attempt of a webhook fails, continues with the next one.
    async fn deliver(
        &self,
        api: &Api,
        url: &str,
        headers: impl Fn(&Delivery) -> Result<Headers, &'static str>,
        is_repeated: fn(u16) -> bool,
    ) {
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
                let headers = match headers(&delivery) {
                    Ok(headers) => headers,
                    Err(reason) => {
                        reason.clone_into(&mut self.state().deliveries[index].response);
                        break;
                    }
                };
                let (status, response) = attempt(api, url, headers, &delivery.body).await;
                {
                    let stored = &mut self.state().deliveries[index];
                    (stored.attempts, stored.status, stored.response) = (stored.attempts + 1, status, response);
                }
                match pause {
                    Some(pause) if status.is_none_or(is_repeated) => tokio::time::sleep(pause).await,
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

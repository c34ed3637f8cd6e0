//! Room for the writes of one organization. They wait for each other's locks anyway, and each that waits holds a
//! connection: without a bound, one organization whose row is locked would keep all of them from everybody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use actix_web::http::Method;
use actix_web::{HttpRequest, web};
use kernel::Code;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Matched;
use crate::problem::Problem;

/// Writes of one organization at once: a quarter of the connections that a pool usually has.
const LANES: usize = 4;

/// How long a write waits for its turn; with the wait for a connection and for a lock it stays below three seconds.
const WAIT: Duration = Duration::from_millis(750);

/// The lanes of the organizations that are being written to, by their slugs.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Mutex<HashMap<String, Weak<Semaphore>>>);

impl Lanes {
    fn of(&self, org: &str) -> Arc<Semaphore> {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = lanes.get(org).and_then(Weak::upgrade) {
            return used;
        }
        lanes.retain(|_, used| used.strong_count() > 0);
        let made = Arc::new(Semaphore::new(LANES));
        lanes.insert(org.to_owned(), Arc::downgrade(&made));
        made
    }
}

/// Waits for a lane of the path's organization, if the request writes to one. Who brings a file takes none: most of the
/// time it holds no connection, and uploads have places of their own.
pub(super) async fn enter(request: &HttpRequest, is_upload: bool) -> Result<Option<OwnedSemaphorePermit>, Problem> {
    let matched = Matched::of(request);
    let org = matched.as_ref().and_then(|matched| matched.get("orgSlug"));
    let lanes = request.app_data::<web::Data<Lanes>>();
    let Some((lanes, org)) = lanes.zip(org).filter(|_| !is_upload && request.method() != Method::GET) else {
        return Ok(None);
    };
    let lane = lanes.of(org);
    match tokio::time::timeout(WAIT, lane.acquire_owned()).await {
        Ok(Ok(entered)) => Ok(Some(entered)),
        _ => Err(Problem::new(
            &Code::UNAVAILABLE,
            "too many changes to this organization at once; try again in a moment",
        )),
    }
}

//! Faults of responses.

use std::future::pending;
use std::time::Duration;

use serde_json::Value;

use crate::http::Response;

/// The delay of a slow response. It is shorter than the timeout of callers.
const SLOW: Duration = Duration::from_secs(2);

/// A fault of an endpoint's response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponseFault {
    /// An HTML page with status 200.
    Html,
    /// No response.
    Hang,
    /// The response arrives after two seconds.
    Slow,
    /// 50 MB of JSON.
    Large,
    /// This JSON with status 200.
    Json(Value),
    /// A redirect to `/elsewhere` of the same server.
    Redirect,
    /// This status.
    Status(u16),
    /// The connection is closed without a response.
    Close,
}

impl ResponseFault {
    /// Responds to a request with this fault. `execute` executes the request. Returns `None` to close the connection
    /// without a response.
    pub(crate) async fn respond(self, execute: impl FnOnce() -> Response) -> Option<Response> {
        Some(match self {
            Self::Close => return None,
            Self::Hang => pending().await,
            Self::Slow => {
                tokio::time::sleep(SLOW).await;
                execute()
            }
            Self::Html => Response::new(200, "text/html", "<!DOCTYPE html><title>Unicorn!</title>"),
            Self::Large => Response::new(200, "application/json", [b"\"", &*vec![b'x'; 50_000_000], b"\""].concat()),
            Self::Json(json) => Response::json(&json),
            Self::Redirect => Response::redirect("/elsewhere"),
            Self::Status(status) => Response::new(status, "application/json", "{}"),
        })
    }
}

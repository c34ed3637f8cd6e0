//! The timeout until a worker responds.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::stream;
use reqwest::{Body, Method};
use tokio::time::sleep;

use super::{HOST, Rig};
use crate::visitor::Visitor;

const TIMEOUT: Duration = Duration::from_secs(5);

const CODE: &str = r#"
export default {
  async fetch(request) {
    if (new URL(request.url).pathname === "/never") await scheduler.wait(600_000);
    return new Response("received " + await request.text());
  },
};
"#;

/// Returns a body of this number of chunks that takes several timeouts. The pause between two chunks is shorter.
fn slow_body(chunks: u32) -> Body {
    Body::wrap_stream(stream::unfold(0, move |sent| async move {
        if sent == chunks {
            return None;
        }
        sleep(TIMEOUT / 4).await;
        Some((Ok::<_, Infallible>("x"), sent + 1))
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn timeout_begins_with_the_last_chunk_of_the_request() {
    let Some(rig) = Rig::start_with(|workers| workers.response_timeout = TIMEOUT).await else { return };
    rig.serves(CODE).await;
    let visitor = &rig.node.visitor;
    let upload = Visitor::send(visitor.request(Method::PUT, HOST, "/").body(slow_body(8)));
    let late = Visitor::send(visitor.request(Method::PUT, HOST, "/never").body(slow_body(1)));
    let (upload, late) = tokio::join!(upload, late);
    assert_eq!((upload.status, upload.body.as_str()), (200, "received xxxxxxxx"));
    assert_eq!(late.status, 504, "{late:?}");
}

//! The page of the buckets and their objects.

use crate::html::{Html, page};
use crate::http::Response;
use crate::systems::Systems;

/// The page lists at most this many objects of a bucket.
const MAX_LISTED: usize = 1000;

pub(super) fn list(systems: &Systems) -> Response {
    let (files, mut html) = (systems.s3.list(), Html::default());
    for bucket in systems.s3.buckets() {
        let prefix = format!("{bucket}/");
        let objects: Vec<_> =
            files.iter().filter_map(|file| Some((file.path.strip_prefix(&prefix)?, file.size))).collect();
        html.raw("<h2>").text(&bucket).raw("</h2><p>").text(&format!("{} objects", objects.len())).raw("</p>");
        html.raw("<table><tr><th>Key<th>Bytes");
        for (key, size) in objects.into_iter().take(MAX_LISTED) {
            html.raw("<tr><td>").text(key).raw("<td>").text(&size.to_string());
        }
        html.raw("</table>");
    }
    page("Objects", &html)
}

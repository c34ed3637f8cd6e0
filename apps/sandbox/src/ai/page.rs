//! The page of the upstream: its calls, and its fault.

use serde_json::Value;

use super::{Ai, FAULTS, MAX_SHOWN, PAGES};
use crate::faults;
use crate::html::{Html, page};
use crate::http::{Request, Response};

impl Ai {
    pub(super) fn page(&self, request: &Request) -> Response {
        if request.method == "POST" {
            let Some(fault) = faults::find(FAULTS, request.parameter("fault")) else {
                return Response::new(400, "text/plain; charset=utf-8", "There is no such fault.");
            };
            self.fault.send_replace(fault);
            return Response::redirect(PAGES);
        }
        let current = *self.fault.borrow();
        let mut html = Html::default();
        html.raw("<p>The model repeats the last message of the user.</p>");
        html.select_fault("Fault", FAULTS.map(|(name, fault)| (name, fault == current)));
        html.raw("<h2>Calls</h2><ul>");
        for call in self.calls().iter().rev().take(MAX_SHOWN) {
            let model = call.body["model"].as_str().unwrap_or_default();
            let question = call.body["messages"].as_array().and_then(|messages| messages.last());
            let question = question.and_then(|message| message["content"].as_str()).unwrap_or_default();
            let question: String = question.chars().take(200).collect();
            let kind = if call.body["stream"] == Value::Bool(true) { "stream" } else { "whole" };
            html.raw("<li><code>").text(model).raw("</code> (").text(kind).raw(", ").text(call.outcome).raw("): ");
            html.text(&question).raw("</li>");
        }
        html.raw("</ul>");
        page("AI models", &html)
    }
}

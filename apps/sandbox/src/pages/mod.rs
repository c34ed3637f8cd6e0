//! The web pages: received mail and the records of the name server.

mod dns;
mod mail;

use crate::html::{Html, page};
use crate::http::{Request, Response};
use crate::systems::Systems;

pub(crate) fn respond(systems: &Systems, request: &Request) -> Response {
    let segments: Vec<&str> = request.path.split('/').skip(1).collect();
    let found = match (request.method.as_str(), segments.as_slice()) {
        ("GET", [""]) => Some(home(systems)),
        ("GET", ["mail"]) => Some(mail::list(systems)),
        ("GET", ["mail", number]) => mail::show(systems, number),
        ("GET", ["mail", number, "html"]) => mail::html(systems, number),
        ("GET", ["mail", number, "raw"]) => mail::raw(systems, number),
        ("GET", ["dns"]) => Some(dns::list(systems, None)),
        ("POST", ["dns"]) => Some(dns::change(systems, request)),
        _ => None,
    };
    found.unwrap_or_else(|| {
        Response::new(404, "text/plain; charset=utf-8", "This page does not exist. Go to / for the list of pages.")
    })
}

fn home(systems: &Systems) -> Response {
    let mut html = Html::default();
    html.raw("<p>This program simulates the external systems for development. It keeps everything in memory.</p>");
    html.raw("<h2>Mail</h2><p>").link("/mail", &format!("{} received", systems.smtp.received().len()));
    html.raw(" by SMTP at ").text(&systems.smtp.address().to_string()).raw(", for all addresses.</p>");
    html.raw("<h2>Code host</h2><p>Start a sign-in at the service, or run <code>svc login</code>. Users:</p><ul>");
    for user in systems.code_host.users() {
        html.raw("<li>").text(user["login"].as_str().unwrap_or_default()).raw("</li>");
    }
    html.raw("</ul><h2>Name server</h2><p>").link("/dns", &format!("{} records", systems.dns.records().len()));
    html.raw(" at ").text(&systems.dns.address().to_string()).raw(". It is authoritative for all names.</p>");
    page("Sandbox", &html)
}

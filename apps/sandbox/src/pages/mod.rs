//! The web pages: received and sent mail, the records of the name server, stored objects, and ended grants.

mod dns;
mod mail;
mod s3;

use crate::html::{Html, page};
use crate::http::{Request, Response};
use crate::s3::S3Server;
use crate::systems::Systems;

pub(crate) async fn respond(systems: &Systems, request: &Request) -> Response {
    let segments: Vec<&str> = request.path.split('/').skip(1).collect();
    let found = match (request.method.as_str(), segments.as_slice()) {
        ("GET", [""]) => Some(home(systems)),
        ("GET", ["mail"]) => Some(mail::list(systems, None)),
        ("POST", ["mail"]) => Some(mail::send(systems, request).await),
        ("GET", ["mail", number]) => mail::show(systems, number),
        ("GET", ["mail", number, "html"]) => mail::html(systems, number),
        ("GET", ["mail", number, "raw"]) => mail::raw(systems, number),
        ("GET", ["dns"]) => Some(dns::list(systems, None)),
        ("GET", ["invites", token]) => Some(invite(token)),
        ("GET", ["lending"]) => Some(systems.lending.page()),
        (_, ["sns"]) => Some(systems.sns.page(request)),
        ("GET", ["s3"]) => Some(s3::list(systems)),
        ("POST", ["dns"]) => Some(dns::change(systems, request)),
        ("POST", ["lending"]) => Some(systems.lending.inject(request)),
        _ => None,
    };
    found.unwrap_or_else(|| {
        Response::new(404, "text/plain; charset=utf-8", "This page does not exist. Go to / for the list of pages.")
    })
}

/// Shows the target of an invitation link. Such links lead to the dashboard, which the sandbox replaces.
fn invite(token: &str) -> Response {
    let mut html = Html::default();
    html.raw("<p>Accept the invitation with <code>svc orgs join ").text(token).raw("</code></p>");
    page("Invitation", &html)
}

fn home(systems: &Systems) -> Response {
    let mut html = Html::default();
    html.raw("<p>This program simulates the external systems for development. It keeps everything except objects in memory.</p>");
    html.raw("<h2>Mail</h2><p>").link("/mail", &format!("{} received", systems.smtp.mails().added()));
    html.raw(" by SMTP at ")
        .text(&systems.smtp.address().to_string())
        .raw(". There you also send mail to projects.</p>");
    html.raw("<h2>Notification service</h2><p>").link("/sns", "The outcomes of relayed mail").raw(".</p>");
    html.raw("<h2>Code host</h2><p>Start a sign-in at the service, or run <code>svc login</code>. Users:</p><ul>");
    for user in systems.code_host.users() {
        html.raw("<li>").text(user["login"].as_str().unwrap_or_default()).raw("</li>");
    }
    html.raw("</ul><h2>Identity providers</h2><p>").link("/identity", "The accounts of end users of deployed apps");
    html.raw(".</p><h2>Name server</h2><p>").link("/dns", &format!("{} records", systems.dns.records().len()));
    html.raw(" at ").text(&systems.dns.address().to_string()).raw(". It is authoritative for all names.</p>");
    html.raw("<h2>S3 server</h2><p>").link("/s3", &format!("{} buckets", systems.s3.buckets().len()));
    html.raw(" at ").text(&format!("http://{}", systems.s3.address())).raw(", with the access key ID <code>");
    html.text(S3Server::ACCESS_KEY_ID).raw("</code> and the secret access key <code>");
    html.text(S3Server::SECRET_ACCESS_KEY).raw("</code>.</p>");
    html.raw("<h2>Connected app</h2><p>")
        .link("/app", "The app of a third party")
        .raw(", which signs you in with the ");
    html.raw(
        "platform. The pages at <code>/oauth</code> and <code>/access/authorize</code> take the place of a dashboard: there \
         you sign in at protected sites, and decide about apps and ",
    );
    html.link("/oauth/device", "devices").raw(".</p><h2>Payments provider</h2><p>");
    html.link("/payments", "Checkouts, customers and webhooks").raw(".</p><h2>Registrar</h2><p>");
    html.link("/registrar", "Domains, orders and calls").raw(".</p><h2>AI models</h2><p>");
    html.link("/ai", "The calls of AI models").raw(".</p><h2>Model-lending service</h2><p>");
    html.link("/lending", &format!("{} ended grants", systems.lending.count())).raw(".</p>");
    page("Sandbox", &html)
}

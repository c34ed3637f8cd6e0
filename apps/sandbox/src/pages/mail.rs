//! The pages of received mail, and the form that sends mail to projects.

use std::net::SocketAddr;
use std::time::Duration;

use lettre::{AsyncSmtpTransport, AsyncTransport as _, Tokio1Executor};
use mail_parser::{Address, Message, MessageParser};

use crate::html::{Html, page};
use crate::http::{Request, Response};
use crate::smtp::ReceivedMail;
use crate::systems::Systems;

/// Allows a mail only to open links in a new tab.
const MAIL_POLICY: &str = "sandbox allow-popups allow-popups-to-escape-sandbox; default-src 'none'; \
    style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'";

/// The timeout of sending a mail.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Shows the mails and a form. `result` is the result of the form.
pub(super) fn list(systems: &Systems, result: Option<Result<String, String>>) -> Response {
    let mut html = Html::default();
    match result {
        Some(Ok(reply)) => html.raw("<p role=status>").text(&format!("Sent: {reply}")).raw("</p>"),
        Some(Err(error)) => html.fault(&format!("Not sent: {error}")),
        None => &mut html,
    };
    html.raw("<h2>Send a mail to a project</h2><form method=post action=\"/mail\">");
    html.raw("<label>From <input name=from type=email required value=\"ada@navy.example\"></label>");
    html.raw("<label>To <input name=to type=email required placeholder=\"any@project.org.mail.localhost\"></label>");
    html.raw("<label>Subject <input name=subject></label><label>Text <input name=text></label><button>Send</button>");
    html.raw("</form><p>The mail server at ").text(&systems.mx.to_string()).raw(" receives it.</p>");
    html.raw("<h2>Received mail</h2>");
    let received = systems.smtp.mails();
    if received.added() == 0 {
        html.raw("<p>No mail yet.</p>");
        return page("Mail", &html);
    }
    html.raw("<table><tr><th>To<th>Subject<th>Date");
    for (index, mail) in received.numbered().rev() {
        let (number, message) = (index + 1, parse(mail));
        html.raw("<tr><td>").text(&mail.to.join(", ")).raw("<td>").link(&format!("/mail/{number}"), subject(&message));
        html.raw("<td>").text(&date(&message));
    }
    html.raw("</table>");
    page("Mail", &html)
}

/// Sends the mail of the form.
pub(super) async fn send(systems: &Systems, request: &Request) -> Response {
    list(systems, Some(submit(systems.mx, request).await))
}

/// Sends the mail of the form to this server. Returns its reply.
async fn submit(server: SocketAddr, request: &Request) -> Result<String, String> {
    let mailbox = |name: &str| request.parameter(name).parse().map_err(|error| format!("{name}: {error}"));
    let mail = lettre::Message::builder().from(mailbox("from")?).to(mailbox("to")?).message_id(None);
    let mail = mail.subject(request.parameter("subject")).body(request.parameter("text").to_owned());
    let mail = mail.map_err(|error| error.to_string())?;
    let transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(server.ip().to_string());
    let transport = transport.port(server.port()).timeout(Some(SEND_TIMEOUT)).build();
    let response = transport.send(mail).await.map_err(|error| error.to_string())?;
    Ok(response.message().collect::<Vec<_>>().join(" "))
}

pub(super) fn show(systems: &Systems, number: &str) -> Option<Response> {
    let mail = find(systems, number)?;
    let message = parse(&mail);
    let mut html = Html::default();
    html.raw("<table><tr><th>From<td>").text(&addresses(message.from()));
    html.raw("<tr><th>To<td>").text(&mail.to.join(", ")).raw("<tr><th>Date<td>").text(&date(&message));
    html.raw("</table><p>").link(&format!("/mail/{number}/raw"), "Source").raw("</p>");
    let text = message.body_text(0).unwrap_or_default();
    if let Some(token) = text.split_whitespace().find_map(|word| word.split_once("/invites/")).map(|(_, token)| token) {
        html.raw("<p>The invitation's link opens the dashboard. Without a dashboard, sign in with <code>svc login</code> and run <code>svc orgs join ");
        html.text(token).raw("</code>.</p>");
    }
    html.raw("<h2>Text</h2><pre>").linked(&text).raw("</pre>");
    if message.html_body_count() > 0 {
        html.raw("<h2>HTML</h2><iframe title=\"HTML part\" src=\"")
            .text(&format!("/mail/{number}/html"))
            .raw("\"></iframe>");
    }
    Some(page(subject(&message), &html))
}

pub(super) fn html(systems: &Systems, number: &str) -> Option<Response> {
    let mail = find(systems, number)?;
    let html = parse(&mail).body_html(0)?.into_owned();
    let response = Response::new(200, "text/html; charset=utf-8", format!("<base target=_blank>{html}"));
    Some(Response { policy: Some(MAIL_POLICY), ..response })
}

pub(super) fn raw(systems: &Systems, number: &str) -> Option<Response> {
    Some(Response::new(200, "text/plain; charset=utf-8", find(systems, number)?.raw))
}

/// Returns the mail with this number. Mails are numbered from 1.
fn find(systems: &Systems, number: &str) -> Option<ReceivedMail> {
    let index = number.parse::<usize>().ok()?.checked_sub(1)?;
    systems.smtp.mails().get(index).cloned()
}

/// Parses a mail. An invalid mail becomes a mail without a header.
fn parse(mail: &ReceivedMail) -> Message<'_> {
    MessageParser::default().parse(&mail.raw).unwrap_or_default()
}

fn subject<'a>(message: &'a Message<'_>) -> &'a str {
    message.subject().unwrap_or("(no subject)")
}

fn date(message: &Message<'_>) -> String {
    message.date().map(ToString::to_string).unwrap_or_default()
}

fn addresses(address: Option<&Address<'_>>) -> String {
    let shown = |address: &mail_parser::Addr<'_>| {
        let email = address.address().unwrap_or_default();
        address.name().map_or_else(|| email.to_owned(), |name| format!("{name} <{email}>"))
    };
    let all = address.into_iter().flat_map(Address::iter);
    all.map(shown).collect::<Vec<_>>().join(", ")
}

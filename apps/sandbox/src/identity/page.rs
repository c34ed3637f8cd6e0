//! The pages of the providers: registration of clients, faults, and the choice of a person.

use super::fault;
use super::provider::Provider;
use super::{Identity, IdentityProvider, PATH, Person};
use crate::html::{Html, page};
use crate::http::{Request, Response};
use crate::oauth::{Account, SignInPage};

impl Identity {
    pub(super) fn page(&self) -> Response {
        let mut html = Html::default();
        html.raw(
            "<p>End users of deployed apps sign in here. Each app registers its own client at each provider.</p><ul>",
        );
        for provider in &self.0 {
            let name = provider.provider;
            html.raw("<li>").link(&format!("{PATH}/{}", name.as_str()), name.title()).raw(", ");
            html.text(&format!("{} clients", provider.state().clients.all().len())).raw("</li>");
        }
        html.raw("</ul>");
        page("Identity providers", &html)
    }
}

/// Responds to a request for the page of a provider.
pub(super) fn respond(provider: &Provider, request: &Request) -> Response {
    if request.method != "POST" {
        return overview(provider, None);
    }
    let overview_path = format!("{PATH}/{}", provider.provider.as_str());
    if !request.parameter("redirect_uris").is_empty() {
        let uris: Vec<&str> = request.parameter("redirect_uris").split_whitespace().collect();
        let registered = provider.state().clients.register(provider.provider, &uris);
        return match registered {
            Ok(_) => Response::redirect(overview_path),
            Err(reason) => overview(provider, Some(&reason)),
        };
    }
    if !request.parameter("keys").is_empty() {
        provider.renew_key();
        return Response::redirect(overview_path);
    }
    match fault::find(request.parameter("fault")) {
        Ok(fault) => {
            provider.state().fault = fault;
            Response::redirect(overview_path)
        }
        Err(()) => Response::new(400, "text/plain; charset=utf-8", "There is no such fault."),
    }
}

fn overview(provider: &Provider, fault: Option<&str>) -> Response {
    let mut html = Html::default();
    let state = provider.state();
    html.raw("<p>Its address is <code>").text(&provider.issuer).raw("</code>.</p>");
    if let Some(fault) = fault {
        html.fault(fault);
    }
    html.raw("<h2>Clients</h2><table><tr><th>Client id</th><th>Client secret</th><th>Redirect URIs</th></tr>");
    for client in state.clients.all() {
        html.raw("<tr><td><code>").text(&client.client_id).raw("</code></td><td><code>").text(&client.client_secret);
        html.raw("</code></td><td>").text(&client.redirect_uris.join(" ")).raw("</td></tr>");
    }
    html.raw("</table><form method=post><label>Redirect URIs, one per line (<code>svc auth status</code> shows them)");
    html.raw("<br><textarea name=redirect_uris rows=3 cols=70 required></textarea></label>");
    html.raw("<button>Register a client</button></form><h2>People</h2><ul>");
    for person in &state.people {
        html.raw("<li>").text(&person.key).raw(": ").text(&person.describe(provider.provider)).raw("</li>");
    }
    html.raw("</ul><h2>Faults</h2>");
    html.select_fault("Fault of every sign-in", fault::names(state.fault.as_ref()));
    if provider.provider.is_openid() {
        html.raw("<form method=post><button name=keys value=renew>Replace the key of ID tokens</button></form>");
    }
    page(provider.provider.title(), &html)
}

/// Returns the error page for a request whose client or redirect URI is not registered. The browser is not sent back.
pub(super) fn unknown_client(provider: IdentityProvider, request: &Request) -> Response {
    let mut html = Html::default();
    html.fault("This client is not registered with this redirect URI.").raw("<p>Client id: <code>");
    html.text(request.parameter("client_id")).raw("</code></p><p>Redirect URI: <code>");
    html.text(request.parameter("redirect_uri")).raw("</code></p><p>");
    html.link(&format!("{PATH}/{}", provider.as_str()), "Register a client").raw("</p>");
    Response { status: 400, ..page(provider.title(), &html) }
}

/// Returns the page for an authorization request.
pub(super) fn choose_person(
    provider: IdentityProvider,
    people: &[Person],
    request: &Request,
    fault: Option<&str>,
) -> Response {
    let mut options = Html::default();
    options.fault_field("Fault of this sign-in", fault::names(None));
    let account = |person: &Person| Account {
        value: person.key.clone(),
        label: person.key.clone(),
        detail: person.describe(provider),
    };
    let page = SignInPage {
        title: provider.title(),
        request,
        field: "person",
        accounts: people.iter().map(account).collect(),
        options,
        other: &[
            ("login", "Login, which determines the id", " required"),
            ("name", "Name (optional)", ""),
            ("email", "Email address (optional)", ""),
            ("verified", "The address is verified", " type=checkbox"),
        ],
        fault,
    };
    page.respond()
}

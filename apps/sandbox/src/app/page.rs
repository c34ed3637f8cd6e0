//! The pages of the app.

use serde_json::Value;

use crate::api::ApiError;
use crate::html::{Html, page};
use crate::http::Response;

const TITLE: &str = "Demo app";

pub(super) fn not_registered() -> Response {
    let mut html = Html::default();
    html.raw(
        "<p>The app is not registered. Run <code>cargo xtask oauth-client add</code>, and start the sandbox with ",
    );
    html.raw("<code>SVC_SANDBOX_APP_CLIENT_ID</code>. <code>cargo xtask dev</code> does both.</p>");
    page(TITLE, &html)
}

pub(super) fn signed_out(api: &str) -> Response {
    let mut html = Html::default();
    html.raw("<p>This is the app of a third party. It knows you only if you sign in with the platform at <code>");
    html.text(api).raw(
        "</code>.</p><form method=post action=\"/app/sign-in\"><button>Sign in with this platform</button></form>",
    );
    page(TITLE, &html)
}

pub(super) fn signed_in(response: &Value, claims: &Value, refreshes: usize, me: &Result<Value, ApiError>) -> Response {
    let mut html = Html::default();
    html.raw("<h2>Response of <code>GET /v1/me</code></h2>");
    match me {
        Ok(me) => add_json(&mut html, me),
        Err(error) => {
            html.fault(&error.to_string());
        }
    }
    html.raw("<h2>Claims of the access token</h2>");
    add_json(&mut html, claims);
    html.raw("<h2>Response of the token endpoint</h2>");
    add_json(&mut html, response);
    html.raw("<p>").text(&format!("Refreshes: {refreshes}")).raw("</p>");
    html.raw("<form method=post action=\"/app/refresh\"><button>Refresh</button></form>");
    html.raw("<form method=post action=\"/app/revoke\"><button>Sign out (revoke)</button></form>");
    page(TITLE, &html)
}

pub(super) fn fault(fault: &str) -> Response {
    let mut html = Html::default();
    html.fault(fault).raw("<p>").link("/app", "Back").raw("</p>");
    page(TITLE, &html)
}

fn add_json(html: &mut Html, value: &Value) {
    html.raw("<pre>").text(&serde_json::to_string_pretty(value).unwrap_or_default()).raw("</pre>");
}

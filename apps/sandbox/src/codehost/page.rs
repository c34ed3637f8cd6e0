//! The page that asks the user to sign in.

use serde_json::Value;

use super::oauth::AUTHORIZE;
use super::user::Users;
use crate::html::{Html, page};
use crate::http::{Request, Response};

pub(super) fn choose_user(users: &Users, request: &Request, fault: Option<&str>) -> Response {
    let action = format!("{AUTHORIZE}?{}", request.query);
    let text = |user: &Value, field: &str| user[field].as_str().unwrap_or_default().to_owned();
    let mut html = Html::default();
    html.raw("<p>")
        .text("Choose the user to sign in with at this application: ")
        .text(request.parameter("redirect_uri"))
        .raw("</p>");
    if let Some(fault) = fault {
        html.raw("<p class=fault role=alert>").text(fault).raw("</p>");
    }
    for user in users.all() {
        html.raw("<form method=post action=\"").text(&action).raw("\"><button name=login value=\"");
        html.text(&text(&user, "login")).raw("\">Sign in as ").text(&text(&user, "login")).raw("</button> ");
        html.text(&format!("{} {}", text(&user, "name"), text(&user, "email"))).raw("</form>");
    }
    html.raw("<h2>Another user</h2><form method=post action=\"").text(&action).raw("\">");
    for (name, label, required) in
        [("login", "Login", " required"), ("name", "Name (optional)", ""), ("email", "Email address (optional)", "")]
    {
        html.raw(&format!("<label>{label} <input name={name} autocomplete=off{required}></label>"));
    }
    html.raw("<button>Sign in</button></form><h2>Deny access</h2><form method=post action=\"").text(&action);
    html.raw("\"><button>Deny access</button></form>");
    page("Sign in to the code host", &html)
}

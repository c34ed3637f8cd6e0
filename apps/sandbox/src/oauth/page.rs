//! The page on which a user signs in, or denies access.

use crate::html::{Html, page};
use crate::http::{Request, Response};

/// The page for an authorization request. Each form is submitted to the address of the request.
#[derive(Debug)]
pub(crate) struct SignInPage<'a> {
    pub title: &'a str,
    pub request: &'a Request,
    /// The name of the field with the chosen account. It is empty if the user denies access.
    pub field: &'a str,
    pub accounts: Vec<Account>,
    /// Fields that are submitted with the chosen or another account.
    pub options: Html,
    /// The fields of the form for another account: their names, labels and attributes.
    pub other: &'a [(&'a str, &'a str, &'a str)],
    pub fault: Option<&'a str>,
}

/// An account that can be chosen.
#[derive(Debug)]
pub(crate) struct Account {
    /// The value of the field.
    pub value: String,
    pub label: String,
    pub detail: String,
}

impl SignInPage<'_> {
    pub fn respond(&self) -> Response {
        let action = format!("{}?{}", self.request.path, self.request.query);
        let mut html = Html::default();
        html.raw("<p>Choose the user to sign in with at this application: ");
        html.text(self.request.parameter("redirect_uri")).raw("</p>");
        if let Some(fault) = self.fault {
            html.fault(fault);
        }
        html.raw("<form method=post action=\"").text(&action).raw("\">").raw(self.options.as_str());
        for account in &self.accounts {
            html.raw("<p><button name=").text(self.field).raw(" value=\"").text(&account.value);
            html.raw("\">Sign in as ").text(&account.label).raw("</button> ").text(&account.detail).raw("</p>");
        }
        html.raw("<p><button name=").text(self.field).raw(" value=\"\">Deny access</button></p></form>");
        html.raw("<h2>Another user</h2><form method=post action=\"").text(&action).raw("\">");
        html.raw(self.options.as_str());
        for (name, label, attributes) in self.other {
            html.raw(&format!("<label>{label} <input name={name} autocomplete=off{attributes}></label>"));
        }
        html.raw("<button>Sign in</button></form>");
        page(self.title, &html)
    }
}

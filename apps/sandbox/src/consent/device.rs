//! The decision about the request of a device.

use serde_json::json;

use super::{Consent, Login, add_fault, add_list, add_user, fault_page, texts};
use crate::html::{Html, page};
use crate::http::{Request, Response};

impl Consent {
    pub(super) async fn device_page(&self, login: &Login, request: &Request) -> Response {
        let code: String =
            request.parameter("user_code").chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        let mut html = Html::default();
        add_user(&mut html, login, request);
        let found = match code.is_empty() {
            true => None,
            false => Some(self.api.get(&format!("/v1/oauth/device/{code}"), Some(&login.token)).await),
        };
        let device = match found {
            Some(Ok(device)) => device,
            other => {
                let fault = other.and_then(Result::err).map(|error| error.to_string());
                add_fault(&mut html, fault.as_deref());
                html.raw("<form method=get action=\"/oauth/device\"><label>Code that the device shows ");
                html.raw("<input name=user_code autocomplete=off required></label><button>Continue</button></form>");
                return page("Connect a device", &html);
            }
        };
        let text = |name: &str| device[name].as_str().unwrap_or_default();
        html.raw("<p>A device with <strong>").text(text("name")).raw("</strong> asks for access to your account. ");
        html.raw("Approve only if it shows the code <strong>").text(text("userCode")).raw("</strong>.</p>");
        add_list(&mut html, "It may", texts(&device, "scopes").into_iter());
        html.raw("<form method=post action=\"/oauth/device\"><input type=hidden name=user_code value=\"");
        html.text(text("userCode")).raw("\"><button name=decision value=approve>Approve</button> ");
        html.raw("<button name=decision value=deny>Deny</button></form>");
        page("Connect a device", &html)
    }

    pub(super) async fn decide(&self, login: &Login, request: &Request) -> Response {
        let approve = request.parameter("decision") == "approve";
        let body = json!({ "userCode": request.parameter("user_code"), "approve": approve });
        match self.api.post("/v1/oauth/device/approve", Some(&login.token), &body).await {
            Err(error) => fault_page("Connect a device", login, request, &error.to_string()),
            Ok(_) => {
                let mut html = Html::default();
                let result = if approve { "The device is connected." } else { "The device has no access." };
                html.raw("<p>").text(result).raw(" You can close this page.</p>");
                page("Connect a device", &html)
            }
        }
    }
}

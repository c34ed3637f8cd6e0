//! The password form.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, ContentType, WWW_AUTHENTICATE};

use crate::page::escaped;

/// The path that the form posts to.
pub const FORM_PATH: &str = "/__svc/access/password";

/// The challenge of a 401 response, which must have one (RFC 9110, section 15.5.2). Visitors sign in with a form of the
/// site or of the dashboard.
pub const CHALLENGE: &str = "Form";

/// Returns the password form, with the error of the previous submission. `next` is the path to redirect to after
/// sign-in.
pub fn form(status: StatusCode, next: &str, error: Option<&str>) -> HttpResponse {
    let error = error.map(|error| format!("<p role=\"alert\">{}</p>\n", escaped(error))).unwrap_or_default();
    let mut response = HttpResponse::build(status);
    response
        .content_type(ContentType::html())
        .insert_header((CACHE_CONTROL, "no-store"))
        .insert_header((CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'"));
    if status == StatusCode::UNAUTHORIZED {
        response.insert_header((WWW_AUTHENTICATE, CHALLENGE));
    }
    response.body(format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Password</title>\n<style>\n\
         body {{ font: 1rem/1.5 system-ui, sans-serif; display: grid; place-items: center; min-height: 90vh; margin: 0 }}\n\
         form {{ display: grid; gap: .75rem; width: min(20rem, 90vw) }}\n\
         input, button {{ font: inherit; padding: .5rem }}\n</style>\n\
         <form method=\"post\" action=\"{FORM_PATH}\">\n<h1>This site is protected</h1>\n{error}\
         <input type=\"hidden\" name=\"next\" value=\"{next}\">\n\
         <label for=\"password\">Password</label>\n\
         <input id=\"password\" name=\"password\" type=\"password\" autocomplete=\"current-password\" required autofocus>\n\
         <button>Enter</button>\n</form>\n</html>\n",
        next = escaped(next),
    ))
}

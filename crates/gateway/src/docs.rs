//! The tables in `docs/` that are generated from the routes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use actix_web::http::StatusCode;
use identity::IdentityError;
use kernel::Code;

use crate::http::Routes;
use crate::openapi::target_name;
use crate::protocol;

/// Renders `docs/routes.md`: every route with its target, minimum role and scope.
#[must_use]
pub fn routes_markdown(public: &Routes, internal: &Routes) -> String {
    let mut text = String::from("# Routes\n\nWritten by `cargo xtask codegen` from the types of the handlers.\n");
    for (title, routes) in [("Public listener", public), ("Internal listener", internal)] {
        let columns = "| route | summary | target | minimum role | scope |";
        let _ = write!(text, "\n## {title}\n\n{columns}\n|---|---|---|---|---|\n");
        for operation in routes.operations() {
            let role = operation.role.map_or("–", |role| role.as_str());
            let scope = match operation.scope {
                Some(scope) => scope.as_str(),
                None if operation.session_only => "login session only",
                None => "–",
            };
            let (method, path, summary) = (&operation.method, operation.path, operation.summary);
            let _ = writeln!(
                text,
                "| `{method} {path}` | {summary} | {} | {role} | {scope} |",
                target_name(operation.target)
            );
        }
    }
    text
}

/// Renders `docs/errors.md`: every code with its status and meaning, one row for each status of a code.
#[must_use]
pub fn errors_markdown(public: &Routes) -> String {
    let mut codes = BTreeMap::new();
    // The errors of requests that reach no operation.
    let without_operation =
        [&Code::NOT_FOUND, &protocol::METHOD_NOT_ALLOWED, &protocol::URI_TOO_LONG, &protocol::HEADERS_TOO_LARGE];
    let formats = public.operations().map(|operation| (operation, public.error_format_of(operation.path)));
    // Without a body, a response has no code.
    for (operation, format) in formats.filter(|(_, format)| format.schema().is_some()) {
        for code in &operation.codes {
            let (name, meaning) = format.wire_code(code);
            codes.insert((name, protocol::status(code).as_u16()), meaning);
        }
    }
    for format in ["/v1", "/oauth"].map(|path| public.error_format_of(path)) {
        for code in without_operation {
            let (name, meaning) = format.wire_code(code);
            codes.insert((name, protocol::status(code).as_u16()), meaning);
        }
    }
    let node = &protocol::UNKNOWN_HOSTNAME;
    codes.insert((node.name, protocol::status(node).as_u16()), node.meaning);
    for code in [&IdentityError::ACCESS_DENIED, &IdentityError::CODEHOST_UNAVAILABLE] {
        codes.insert((code.name, StatusCode::FOUND.as_u16()), code.meaning);
    }
    let mut text = String::from(
        "# Errors\n\nWritten by `cargo xtask codegen`. Rely on `code`, not on the message. Include `requestId` \
         when you ask for help. Errors below `/oauth` have the code in `error`, and errors below `/v1/hooks` have no \
         body.\n\n\
         | code | status | when |\n|---|---|---|\n",
    );
    for ((name, status), meaning) in codes {
        let _ = writeln!(text, "| `{name}` | {status} | {meaning} |");
    }
    text
}

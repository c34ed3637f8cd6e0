//! The errors of a command: message, details, hint and exit code (`docs/cli.md`).

use std::io;
use std::process::ExitCode;

use client::Error;
use serde_json::Value;

use crate::svc::uses_stored_credential;

/// The codes of 502 and 503 after which the same request may succeed later. The other codes mean that the installation
/// does not offer something, such as `no_core` and `dns_not_configured`, or that an operation failed.
const TRANSIENT_CODES: &[&str] = &[
    "unavailable",
    "temporarily_unavailable",
    "billing_unavailable",
    "git_unreachable",
    "registrar_error",
    "saga_incomplete",
];

/// The hint for a request to a path that the API does not have.
const WRONG_BASE_URL: &str = "check that --api is the base URL of the API, without /v1";
/// The hint for a project without a database.
const ENABLE_DATABASE: &str = "`svc db enable` creates the database";
/// The hint for a feature that the installation does not offer.
const ASK_OPERATOR: &str = "ask the operator of the platform";

#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error(transparent)]
    Api(#[from] Error),
    /// An error response of the API, and the next step for the user. The code of such an error has several causes, so
    /// the code alone does not determine the step.
    #[error("{0}")]
    Explained(Error, &'static str),
    /// The command line is invalid or incomplete.
    #[error("{0}")]
    Usage(String),
    /// No credential is stored for the API at this URL.
    #[error("you are not signed in at {0}")]
    NotSignedIn(String),
    /// The folder is not a valid bundle.
    #[error("{0}")]
    Bundle(String),
    /// The deployment exists but is not served.
    #[error("{0}")]
    NotServed(String),
    /// The deployment exists but lacks these resources, which `svc.json` declares.
    #[error("deployed, but failed to enable {}", .0.join(" and "))]
    NotEnabled(Vec<&'static str>),
    /// The ownership of a hostname is not verified.
    #[error("{0}")]
    NotVerified(String),
    /// An operation on a database was aborted or has failed. The database still has its previous content.
    #[error("{0}")]
    OperationFailed(String),
    /// The payments provider confirmed no payment while `svc` waited for it.
    #[error("no payment was confirmed within 30 minutes")]
    NotPaid,
    #[error("{0}")]
    Other(String),
    /// The reader of stdout or stderr has closed it.
    #[error("the output is closed")]
    Closed,
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::Closed } else { Self::Other(error.to_string()) }
    }
}

impl CliError {
    /// Adds a file's path to an I/O error.
    pub fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Other(format!("{}: {error}", path.display()))
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Closed => 0,
            Self::Usage(_) | Self::Api(Error::InvalidArgument(_)) => 2,
            Self::NotSignedIn(_) => 3,
            Self::Bundle(_) => 6,
            Self::NotServed(_) | Self::NotEnabled(_) | Self::NotVerified(_) => 8,
            Self::OperationFailed(_) => 9,
            Self::Api(Error::Unreachable(_)) => 7,
            Self::Api(error) | Self::Explained(error, _) => match (error.status(), error.code()) {
                (_, Some("invalid_bundle" | "payload_too_large")) => 6,
                (Some(401), _) => 3,
                (Some(403), _) => 4,
                (Some(404), _) => 5,
                (Some(429 | 504), _) => 7,
                // A proxy returns no code.
                (Some(502 | 503), code) if code.is_none_or(|code| TRANSIENT_CODES.contains(&code)) => 7,
                _ => 1,
            },
            Self::NotPaid | Self::Other(_) => 1,
        })
    }

    /// Returns the error response of the API, if there is one.
    pub fn json(&self) -> Option<&Value> {
        match self {
            Self::Api(Error::Api { json, .. }) | Self::Explained(Error::Api { json, .. }, _) => Some(json),
            _ => None,
        }
    }

    /// Returns further lines: field errors, the DNS record to publish, the error code and the request ID.
    pub fn details(&self) -> Vec<String> {
        match self {
            Self::Api(Error::Api { envelope, .. }) | Self::Explained(Error::Api { envelope, .. }, _) => {
                let detail = |name| envelope.details.as_ref().and_then(|it| it.get(name));
                let mut lines = field_errors(detail("fields"), &envelope.message);
                lines.extend(zone_file_errors(detail("lines")));
                lines.extend(detail("verify").map(verify_record));
                lines.push(match envelope.request_id.as_str() {
                    // An OAuth error has no request ID.
                    "" => format!("code {}", envelope.code),
                    id => format!("code {}, request {id}", envelope.code),
                });
                lines
            }
            Self::Api(error) => std::iter::successors(std::error::Error::source(error), |it| it.source())
                .map(ToString::to_string)
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the next step for the user.
    pub fn hint(&self) -> Option<String> {
        let envelope = match self {
            Self::NotEnabled(_) => return Some("correct the cause, then run `svc deploy` again".to_owned()),
            Self::NotSignedIn(_) => return Some("sign in with `svc login`, or set SVC_CLI_TOKEN".to_owned()),
            Self::Explained(_, hint) => return Some((*hint).to_owned()),
            Self::NotPaid => {
                return Some(
                    "if you have paid, `svc billing status` shows the plan, and `svc ai credit` the credit".to_owned(),
                );
            }
            Self::Api(Error::Unreachable(_)) => {
                return Some("check that --api is correct and that the API is running".to_owned());
            }
            Self::Api(Error::Unexpected { status: 404, .. }) => return Some(WRONG_BASE_URL.to_owned()),
            Self::Api(Error::Api { envelope, .. }) => envelope,
            _ => return None,
        };
        Some(match envelope.code.as_str() {
            "unauthenticated" if !uses_stored_credential() => {
                "SVC_CLI_TOKEN is not valid: unset or replace it".to_owned()
            }
            "unauthenticated" => "sign in again with `svc login`".to_owned(),
            "session_required" if !uses_stored_credential() => {
                "access tokens cannot do this: unset SVC_CLI_TOKEN, and sign in with `svc login`".to_owned()
            }
            "session_required" => "access tokens cannot do this: sign in with `svc login`".to_owned(),
            "insufficient_scope" => {
                let scope = envelope.details.as_ref()?.get("required")?.as_str()?;
                format!("create a token with `svc tokens create <name> --scope {scope}`")
            }
            "forbidden" => {
                "`svc orgs list` shows your role; ask an admin of the organization for a higher one".to_owned()
            }
            "hostname_taken" | "zone_taken" | "domain_taken"
                if envelope.details.as_ref().is_some_and(|it| it.contains_key("verify")) =>
            {
                "if you own the domain, publish the TXT record at its DNS provider, then run the same command again: \
                 the name becomes yours"
                    .to_owned()
            }
            "precondition_failed" => "the zone was changed in the meantime: run the same command again".to_owned(),
            "operation_in_progress" => "wait until the other operation on the database is complete".to_owned(),
            "database_required" => ENABLE_DATABASE.to_owned(),
            "auth_enabled" => "`svc auth disable` disables app sign-in, whose users are in the database".to_owned(),
            "not_granted" => "`svc auth enable` enables the sign-in of your users".to_owned(),
            "no_home_node" | "no_node_admin" => {
                "no server of the platform can hold the database now: contact the operator".to_owned()
            }
            "not_found" => not_found_hint(&envelope.message)?.to_owned(),
            "project_limit" | "hostname_limit" | "bundle_bytes_limit" | "zone_limit" | "zone_bytes_limit"
            | "token_limit"
                if envelope.details.as_ref()?.get("plan")? == "free" =>
            {
                "`svc billing upgrade` buys the pro plan, and `svc billing status` shows the limits of both plans"
                    .to_owned()
            }
            "user_not_found" => {
                "`svc whoami` shows users their subject and provider; `svc orgs invite` invites a mail address"
                    .to_owned()
            }
            "already_pro" => {
                "`svc billing portal` changes the payment method, and `svc billing cancel` ends the plan".to_owned()
            }
            "not_pro" => "`svc billing upgrade` starts the purchase of the pro plan".to_owned(),
            "no_payment_method" if envelope.message.contains("is not sold") => ASK_OPERATOR.to_owned(),
            "no_payment_method" | "payment_failed" => {
                "`svc billing portal` saves or changes the payment method, after a first purchase: \
                 `svc ai credit buy`, or `svc billing upgrade` for the pro plan"
                    .to_owned()
            }
            "saga_incomplete" | "registrar_error" => {
                "run the same command again: it continues where it stopped".to_owned()
            }
            "registrar_rejected" => "run the command again; if a value was refused, correct it first".to_owned(),
            "price_changed" | "domain_unavailable" => {
                "`svc domains check <NAME>` shows prices and availability".to_owned()
            }
            "domain_not_managed" => "manage this domain at the registrar where it is registered".to_owned(),
            "billing_off" | "registrar_not_configured" => ASK_OPERATOR.to_owned(),
            "internal" => "this is an error of the service: report the request ID to its operator".to_owned(),
            "unavailable" | "rate_limited" | "billing_unavailable" => "try again in a moment".to_owned(),
            _ => return None,
        })
    }
}

/// Returns whether a request failed because an `object`, such as `organization`, does not exist. Only the message names
/// it: the code `not_found` is that of every missing object.
pub fn is_missing(error: &Error, object: &str) -> bool {
    let Error::Api { envelope, .. } = error else { return false };
    envelope.code == "not_found" && envelope.message.contains(&format!("no such {object}"))
}

/// Returns the next step after `not_found`, if the message names an object that a command lists or creates.
fn not_found_hint(message: &str) -> Option<&'static str> {
    [
        ("no such organization", "`svc orgs list` lists your organizations"),
        ("no such project", "`svc projects list` lists the projects of the organization"),
        ("has no database", ENABLE_DATABASE),
        ("no resource at this address", WRONG_BASE_URL),
    ]
    .into_iter()
    .find_map(|(text, hint)| message.contains(text).then_some(hint))
}

fn text(object: &Value, name: &str) -> String {
    object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns the DNS record in `details.verify`.
fn verify_record(record: &Value) -> String {
    format!("{} {} {}", text(record, "name"), text(record, "type"), text(record, "value"))
}

/// Returns the entries of `details.lines`, the invalid lines of a zone file.
fn zone_file_errors(lines: Option<&Value>) -> impl Iterator<Item = String> {
    let lines = lines.and_then(Value::as_array).into_iter().flatten();
    lines.filter_map(|line| Some(format!("line {}: {}", line.get("line")?, text(line, "message"))))
}

/// Returns the entries of `details.fields`, one per line. A single entry is omitted if the message contains it.
fn field_errors(fields: Option<&Value>, message: &str) -> Vec<String> {
    let fields = fields.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if let [field] = fields
        && message.contains(&text(field, "message"))
    {
        return Vec::new();
    }
    let line = |field| format!("{} {}", text(field, "path"), text(field, "message")).trim().to_owned();
    fields.iter().map(line).collect()
}

//! How a command fails: what is said, what to do next, and the exit code (`docs/cli.md`).

use std::io;
use std::process::ExitCode;

use client::Error;
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Api(#[from] Error),
    /// The command line, or what it refers to, makes no sense.
    #[error("{0}")]
    Usage(String),
    /// There is no credential for the API at this address.
    #[error("you are not signed in at {0}")]
    SignedOut(String),
    /// The folder is no bundle.
    #[error("{0}")]
    Bundle(String),
    /// It was deployed, and is not what visitors see.
    #[error("{0}")]
    NotServed(String),
    #[error("{0}")]
    Other(String),
    /// Whoever reads our output has gone.
    #[error("the output is closed")]
    Closed,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::Closed } else { Self::Other(error.to_string()) }
    }
}

impl Failure {
    /// An operation on a file that failed.
    pub fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Other(format!("{}: {error}", path.display()))
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Closed => 0,
            Self::Usage(_) | Self::Api(Error::Argument(_)) => 2,
            Self::SignedOut(_) => 3,
            Self::Bundle(_) => 6,
            Self::NotServed(_) => 8,
            Self::Api(Error::Unreachable(_)) => 7,
            Self::Api(error) => match (error.status(), error.code()) {
                (_, Some("invalid_bundle" | "payload_too_large")) => 6,
                (Some(401), _) => 3,
                (Some(403), _) => 4,
                (Some(404), _) => 5,
                (Some(429 | 502 | 503 | 504), _) => 7,
                _ => 1,
            },
            Self::Other(_) => 1,
        })
    }

    /// What the API answered, where it did.
    pub fn json(&self) -> Option<&Value> {
        match self {
            Self::Api(Error::Refused { json, .. }) => Some(json),
            _ => None,
        }
    }

    /// Further lines: what exactly is wrong, and the id by which the operator finds the request.
    pub fn details(&self) -> Vec<String> {
        match self {
            Self::Api(Error::Refused { envelope, .. }) => {
                let mut lines = faults(envelope.details.as_ref().and_then(|it| it.get("fields")));
                lines.push(format!("code {}, request {}", envelope.code, envelope.request_id));
                lines
            }
            Self::Api(error) => std::iter::successors(std::error::Error::source(error), |it| it.source())
                .map(ToString::to_string)
                .collect(),
            _ => Vec::new(),
        }
    }

    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        let envelope = match self {
            Self::SignedOut(_) => return Some("sign in with `svc login`, or set SVC_CLI_TOKEN".to_owned()),
            Self::Api(Error::Unreachable(_)) => {
                return Some("see that --api names the API, and that it runs".to_owned());
            }
            Self::Api(Error::Refused { envelope, .. }) => envelope,
            _ => return None,
        };
        Some(match envelope.code.as_str() {
            "unauthenticated" => "sign in again with `svc login`".to_owned(),
            "session_required" => "an access token does not serve here: sign in with `svc login`".to_owned(),
            "insufficient_scope" => {
                let scope = envelope.details.as_ref()?.get("required")?.as_str()?;
                format!("make a token with `svc tokens create <name> --scope {scope}`")
            }
            "forbidden" => "`svc orgs list` shows your role; an admin of the organization can raise it".to_owned(),
            "not_found" => "`svc orgs list` and `svc projects list` show what there is".to_owned(),
            "internal" => "this is a fault of the service: tell its operator the request id".to_owned(),
            "unavailable" | "rate_limited" => "try again in a moment".to_owned(),
            _ => return None,
        })
    }
}

/// `details.fields` as lines.
fn faults(fields: Option<&Value>) -> Vec<String> {
    let text = |fault: &Value, name: &str| fault.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let fields = fields.and_then(Value::as_array).into_iter().flatten();
    fields.map(|fault| format!("{} {}", text(fault, "path"), text(fault, "message")).trim().to_owned()).collect()
}

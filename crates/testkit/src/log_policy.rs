//! The log policy (`docs/logging.md`), enforced at level `trace` in every process that creates a test database.

use std::fmt::{Debug, Write as _};
use std::io::Write as _;
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_global_default;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// The largest number of characters of a message.
const MAX_MESSAGE: usize = 100;

/// Installs the global subscriber that ends the process at the first log line or span that violates the policy. Further
/// calls do nothing.
pub fn enforce() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // If a test binary has installed another subscriber, that one stays.
        let _ = set_global_default(tracing_subscriber::registry().with(LogPolicy));
    });
}

struct LogPolicy;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LogPolicy {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::new(event.metadata());
        event.record(&mut fields);
        fields.finish();
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut fields = Fields::new(attributes.metadata());
        attributes.record(&mut fields);
        fields.finish();
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(metadata) = context.metadata(id) {
            let mut fields = Fields::new(metadata);
            values.record(&mut fields);
            fields.finish();
        }
    }
}

/// Collects the violations of one line or span.
struct Fields {
    metadata: &'static Metadata<'static>,
    is_ours: bool,
    violations: Vec<String>,
    text: String,
}

impl Fields {
    fn new(metadata: &'static Metadata<'static>) -> Self {
        // cargo compiles crates of the workspace with relative paths, and dependencies with absolute ones.
        let is_ours = metadata.file().is_some_and(|file| file.starts_with("crates/") || file.starts_with("apps/"));
        Self { metadata, is_ours, violations: Vec::new(), text: String::new() }
    }

    fn check(&mut self, field: &Field) {
        let Self { text, violations, is_ours, .. } = self;
        let name = field.name();
        violations.extend(forbidden_content(text).map(|what| format!("{name} contains {what}: {text}")));
        if !*is_ours {
            return;
        }
        if name == "message" {
            violations.extend(message_violation(text).map(|fault| format!("the message {fault}: {text}")));
        } else if !is_field_name(name) {
            violations.push(format!("the field name {name} is not in snake case"));
        }
    }

    fn finish(self) {
        if self.violations.is_empty() {
            return;
        }
        let (file, line) = (self.metadata.file().unwrap_or_default(), self.metadata.line().unwrap_or_default());
        let mut report = format!("log policy violated at {file}:{line} ({}):\n", self.metadata.target());
        for violation in self.violations {
            let _ = writeln!(report, "  {violation}");
        }
        // A panic would not suffice, because a server task survives it. The report bypasses the captured output of the
        // test.
        let _ = std::io::stderr().write_all(report.as_bytes());
        std::process::exit(101);
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text.clear();
        self.text.push_str(value);
        self.check(field);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text.clear();
        let _ = write!(self.text, "{value:?}");
        self.check(field);
    }
}

/// Returns the rule that the message of one of our lines breaks. A message must be a constant sentence fragment that
/// starts in lower case.
fn message_violation(message: &str) -> Option<&'static str> {
    if message.chars().count() > MAX_MESSAGE {
        return Some("has more than 100 characters");
    }
    if !message.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Some("does not start in lower case");
    }
    if message.ends_with('.') {
        return Some("ends with a full stop");
    }
    let is_constant = message.chars().all(|c| c.is_ascii_alphabetic() || " ,;:'-/".contains(c));
    (!is_constant).then_some("contains a value, which belongs in a field")
}

fn is_field_name(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'.')
}

/// Returns the kind of forbidden content in a value: a credential, a code or an address of a person.
fn forbidden_content(text: &str) -> Option<&'static str> {
    let is_secret = |byte: &u8| byte.is_ascii_alphanumeric();
    let is_token = |(at, _): (usize, &str)| {
        let mut rest = text.as_bytes()[at + 4..].iter();
        rest.by_ref().take(3).all(u8::is_ascii_lowercase)
            && rest.next() == Some(&b'_')
            && rest.take_while(|byte| is_secret(byte)).count() >= 20
    };
    if text.match_indices("svc_").any(is_token) {
        return Some("a credential of this service");
    }
    let is_bearer =
        |(at, _): (usize, &str)| text.as_bytes()[at + 7..].iter().take_while(|it| is_secret(it)).count() > 8;
    if text.match_indices("Bearer ").any(is_bearer) {
        return Some("a bearer token");
    }
    let has_password = |(at, _): (usize, &str)| {
        let authority = text[at + 3..].split(['/', '?', '#', '"', ' ']).next().unwrap_or_default();
        authority.split_once('@').is_some_and(|(user, _)| user.contains(':'))
    };
    if text.match_indices("://").any(has_password) {
        return Some("a password in a URL");
    }
    let is_mail_address = |(at, _): (usize, &str)| {
        let local = text[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        let domain: String =
            text[at + 1..].chars().take_while(|c| c.is_ascii_alphanumeric() || ".-".contains(*c)).collect();
        local && domain.split_once('.').is_some_and(|(name, rest)| !name.is_empty() && rest.len() >= 2)
    };
    text.match_indices('@').any(is_mail_address).then_some("an email address")
}

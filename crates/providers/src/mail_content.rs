//! The content of a mail, and its template as text and HTML.
//!
//! The HTML works in common mail clients. It has tables and inline styles, no images, a button that Outlook renders,
//! and colors for light and dark mode. Values contain names that users chose, so each value is escaped and becomes one
//! line.

use url::Url;

/// The content of a mail. The values are plain text, and control characters become spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailContent {
    /// The subject.
    pub subject: String,
    /// The heading above the text.
    pub heading: String,
    /// The text.
    pub paragraphs: Vec<String>,
    /// The button.
    pub action: Option<Action>,
    /// The reason why the recipient gets the mail, in small print.
    pub footer: String,
}

/// A button with its link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    label: String,
    url: Url,
}

/// An address that is not allowed as a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a link in a mail must be an http or https address without credentials")]
pub struct InvalidLink;

impl Action {
    /// Creates a button.
    ///
    /// # Errors
    /// Returns an error for an address that is not http or https, or that has credentials, because they can disguise
    /// the host.
    pub fn new(label: impl Into<String>, url: &str) -> Result<Self, InvalidLink> {
        let url = Url::parse(url).map_err(|_| InvalidLink)?;
        let has_no_credentials = url.username().is_empty() && url.password().is_none();
        let is_http = matches!(url.scheme(), "http" | "https");
        if has_no_credentials && is_http { Ok(Self { label: label.into(), url }) } else { Err(InvalidLink) }
    }
}

impl MailContent {
    /// Returns the subject as one line.
    pub(crate) fn subject(&self) -> String {
        single_line(&self.subject)
    }

    /// Renders the content as plain text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut blocks = vec![single_line(&self.heading)];
        blocks.extend(self.paragraphs.iter().map(|paragraph| single_line(paragraph)));
        blocks.extend(self.action.iter().map(|action| format!("{}:\n{}", single_line(&action.label), action.url)));
        // The signature separator (RFC 3676 section 4.3).
        blocks.push(format!("-- \n{}", single_line(&self.footer)));
        blocks.join("\n\n") + "\n"
    }

    /// Renders the content as HTML.
    #[must_use]
    pub fn html(&self) -> String {
        let paragraphs: String = self
            .paragraphs
            .iter()
            .map(|paragraph| format!("<p style=\"{PARAGRAPH}\">{}</p>\n", escaped(paragraph)))
            .collect();
        let action = self.action.as_ref().map(Action::html).unwrap_or_default();
        let (subject, heading, footer) = (escaped(&self.subject), escaped(&self.heading), escaped(&self.footer));
        format!(
            r##"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="supported-color-schemes" content="light dark">
<title>{subject}</title>
<style>
:root {{ color-scheme: light dark; }}
@media (prefers-color-scheme: dark) {{
.page {{ background-color: #111827 !important; }}
.card {{ background-color: #1f2937 !important; }}
.ink {{ color: #f3f4f6 !important; }}
.faint {{ color: #9ca3af !important; }}
.link {{ color: #93c5fd !important; }}
}}
</style>
</head>
<body class="page" style="margin:0;padding:0;background-color:#f3f4f6;">
<table role="presentation" class="page" width="100%" cellpadding="0" cellspacing="0" border="0" bgcolor="#f3f4f6">
<tr><td align="center" style="padding:24px 12px;">
<!--[if mso]><table role="presentation" width="560" cellpadding="0" cellspacing="0" border="0"><tr><td><![endif]-->
<table role="presentation" class="card" width="100%" cellpadding="0" cellspacing="0" border="0" bgcolor="#ffffff" style="max-width:560px;">
<tr><td class="ink" align="left" style="padding:32px;{FONT}color:#111827;">
<h1 class="ink" style="margin:0 0 16px;{FONT}font-size:20px;line-height:28px;color:#111827;">{heading}</h1>
{paragraphs}{action}<p class="faint" style="margin:32px 0 0;{FONT}font-size:13px;line-height:20px;color:#6b7280;">{footer}</p>
</td></tr>
</table>
<!--[if mso]></td></tr></table><![endif]-->
</td></tr>
</table>
</body>
</html>
"##
        )
    }
}

const FONT: &str = "font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;";
const PARAGRAPH: &str = "margin:0 0 16px;font-size:16px;line-height:24px;";

impl Action {
    /// Renders the button as a colored table cell, which looks like a button even in clients that ignore the padding
    /// of links. The address below the button can be read and copied.
    fn html(&self) -> String {
        let (label, url) = (escaped(&self.label), escaped(self.url.as_str()));
        format!(
            r##"<table role="presentation" cellpadding="0" cellspacing="0" border="0" style="margin:24px 0;">
<tr><td align="center" bgcolor="#1d4ed8" style="border-radius:6px;mso-padding-alt:12px 24px;">
<a href="{url}" target="_blank" style="display:inline-block;padding:12px 24px;{FONT}font-size:16px;line-height:24px;font-weight:bold;color:#ffffff;text-decoration:none;">{label}</a>
</td></tr>
</table>
<p class="faint" style="margin:0 0 16px;font-size:13px;line-height:20px;color:#6b7280;word-break:break-all;">
<a class="link" href="{url}" target="_blank" style="color:#1d4ed8;">{url}</a></p>
"##
        )
    }
}

/// Converts a value to one line, so that it cannot add lines to the text or headers to the mail.
fn single_line(text: &str) -> String {
    text.replace("\r\n", " ")
        .replace(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'), " ")
        .trim()
        .to_owned()
}

fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in single_line(text).chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    html
}

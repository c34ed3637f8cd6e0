//! What a mail says, and the one template that it is set in.
//!
//! The HTML is for mail clients as they are: tables and inline styles, no images, a button that Outlook draws too, and
//! colours that hold in the dark. Every value is one line of text to both forms; names that users chose come in here.

use url::Url;

/// A mail's contents. The values are plain text; a control character in one becomes a space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// The subject.
    pub subject: String,
    /// What stands above the text.
    pub heading: String,
    /// The text.
    pub paragraphs: Vec<String>,
    /// What the reader is asked to do.
    pub action: Option<Action>,
    /// Why they got it; in small print.
    pub footer: String,
}

/// A button, and the address it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    label: String,
    url: Url,
}

/// An address that no mail leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a link in a mail is an http or https address")]
pub struct NotALink;

impl Action {
    /// A button with this label.
    ///
    /// # Errors
    /// An address that is not http or https, or holds credentials, which would show another host than it leads to.
    pub fn new(label: impl Into<String>, url: &str) -> Result<Self, NotALink> {
        let url = Url::parse(url).map_err(|_| NotALink)?;
        let plain = url.username().is_empty() && url.password().is_none();
        let web = matches!(url.scheme(), "http" | "https");
        if plain && web { Ok(Self { label: label.into(), url }) } else { Err(NotALink) }
    }
}

impl Letter {
    /// The subject on one line.
    pub(crate) fn subject(&self) -> String {
        line(&self.subject)
    }

    /// As plain text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut blocks = vec![line(&self.heading)];
        blocks.extend(self.paragraphs.iter().map(|paragraph| line(paragraph)));
        blocks.extend(self.action.iter().map(|action| format!("{}:\n{}", line(&action.label), action.url)));
        // The signature's separator (RFC 3676 section 4.3).
        blocks.push(format!("-- \n{}", line(&self.footer)));
        blocks.join("\n\n") + "\n"
    }

    /// As HTML.
    #[must_use]
    pub fn html(&self) -> String {
        let paragraphs: String =
            self.paragraphs.iter().map(|paragraph| format!("<p style=\"{P}\">{}</p>\n", escaped(paragraph))).collect();
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
const P: &str = "margin:0 0 16px;font-size:16px;line-height:24px;";

impl Action {
    /// A cell with a colour of its own is the button where padding of a link is ignored; the address below it is for
    /// those who rather read where they are led, or paste it.
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

/// One line: nothing in a value begins a line of its own, be it of the text or of the mail's head.
fn line(text: &str) -> String {
    text.replace("\r\n", " ")
        .replace(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'), " ")
        .trim()
        .to_owned()
}

fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in line(text).chars() {
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

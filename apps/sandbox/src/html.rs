//! Plain HTML pages.

use crate::http::Response;

const STYLE: &str = "body{font:1rem/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
    form{margin:.5rem 0}label{display:block;margin:.5rem 0}input{font:inherit;width:20rem;max-width:100%}\
    button{font:inherit}table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25rem .75rem .25rem 0;\
    vertical-align:top;border-bottom:1px solid #ccc}pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f4f4f4;\
    padding:1rem}iframe{width:100%;height:32rem;border:1px solid #ccc}.fault{color:#a00}";
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'";

/// A builder of HTML.
#[derive(Debug, Default)]
pub(crate) struct Html(String);

impl Html {
    /// Adds markup.
    pub fn raw(&mut self, markup: &str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Adds escaped text, for an element or a quoted attribute.
    pub fn text(&mut self, text: &str) -> &mut Self {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                other => self.0.push(other),
            }
        }
        self
    }

    /// Adds a link.
    pub fn link(&mut self, url: &str, text: &str) -> &mut Self {
        self.raw("<a href=\"").text(url).raw("\">").text(text).raw("</a>")
    }

    /// Adds text, and turns the URLs in it into links.
    pub fn linked(&mut self, text: &str) -> &mut Self {
        for word in text.split_inclusive(char::is_whitespace) {
            let url = word.trim_end();
            if url.starts_with("http://") || url.starts_with("https://") {
                self.link(url, url).text(&word[url.len()..]);
            } else {
                self.text(word);
            }
        }
        self
    }

    /// Adds the paragraph of a failure.
    pub fn fault(&mut self, text: &str) -> &mut Self {
        self.raw("<p class=fault role=alert>").text(text).raw("</p>")
    }

    /// Adds a form that selects one of these faults. The selected one is marked.
    pub fn select_fault<'a>(&mut self, label: &str, faults: impl IntoIterator<Item = (&'a str, bool)>) -> &mut Self {
        self.raw("<form method=post>").fault_field(label, faults).raw("<button>Set</button></form>")
    }

    /// Adds the field `fault` of a form, which selects one of these faults. The selected one is marked.
    pub fn fault_field<'a>(&mut self, label: &str, faults: impl IntoIterator<Item = (&'a str, bool)>) -> &mut Self {
        self.raw("<label>").text(label).raw(" <select name=fault>");
        for (name, is_selected) in faults {
            self.raw(if is_selected { "<option selected>" } else { "<option>" }).text(name).raw("</option>");
        }
        self.raw("</select></label>")
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns a page with this title.
pub(crate) fn page(title: &str, body: &Html) -> Response {
    let mut html = Html::default();
    html.raw("<!DOCTYPE html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">");
    html.raw("<title>").text(title).raw(" · sandbox</title><style>").raw(STYLE).raw("</style>");
    html.raw(
        "<nav><a href=\"/\">Sandbox</a> · <a href=\"/mail\">Mail</a> · <a href=\"/sns\">Delivery notifications</a>",
    );
    html.raw(" · <a href=\"/dns\">DNS records</a>");
    html.raw(" · <a href=\"/s3\">Objects</a> · <a href=\"/app\">Connected app</a>");
    html.raw(" · <a href=\"/payments\">Payments</a> · <a href=\"/registrar\">Registrar</a>");
    html.raw(" · <a href=\"/ai\">AI models</a> · <a href=\"/identity\">Identity providers</a></nav>");
    html.raw("<h1>").text(title).raw("</h1>").raw(body.as_str());
    Response { policy: Some(POLICY), ..Response::new(200, "text/html; charset=utf-8", html.0) }
}

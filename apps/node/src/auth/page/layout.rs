//! The layout of a page: the brand of the project, a message, and links.

use std::fmt::Write as _;

use actix_web::http::StatusCode;
use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_LANGUAGE, CONTENT_SECURITY_POLICY, ContentType, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use actix_web::{HttpResponse, HttpResponseBuilder};
use protocol::AuthBrand;
use reqwest::Url;

use super::Language;
use super::color::Color;
use crate::page::escaped;
use crate::random;

/// The backgrounds in the light and the dark scheme.
const LIGHT: Color = Color::WHITE;
const DARK: Color = Color::new(0x0016_181d);
/// The accent of a project without a brand color.
const DEFAULT_ACCENT: Color = Color::new(0x001f_4fd8);

/// A page.
pub struct Page<'a> {
    pub language: Language,
    pub brand: &'a AuthBrand,
    /// The requested host, which is the name of a project without a brand name.
    pub host: &'a str,
    pub title: String,
    pub text: String,
    /// The links, the most important first.
    pub actions: Vec<Action>,
}

/// A link in the form of a button.
pub struct Action {
    pub label: String,
    /// A path of this host.
    pub href: String,
}

impl Page<'_> {
    /// Returns the response.
    pub fn respond(&self, status: StatusCode) -> HttpResponse {
        let nonce = random::id().simple().to_string();
        let logo = self.brand.logo_url.as_deref().and_then(|url| Url::parse(url).ok());
        let logo = logo.filter(|url| url.scheme() == "https" && url.has_host());
        // The origin of a URL contains no character with a meaning in a policy.
        let images = logo.as_ref().map(|url| format!("; img-src {}", url.origin().ascii_serialization()));
        let policy = format!(
            "default-src 'none'; style-src 'nonce-{nonce}'{}; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'",
            images.unwrap_or_default()
        );
        let mut response = HttpResponse::build(status);
        set_headers(&mut response)
            .content_type(ContentType::html())
            .insert_header((CONTENT_LANGUAGE, self.language.tag()))
            .insert_header((CONTENT_SECURITY_POLICY, policy))
            .insert_header((X_FRAME_OPTIONS, "DENY"))
            .body(self.html(&nonce, logo.as_ref()))
    }

    fn html(&self, nonce: &str, logo: Option<&Url>) -> String {
        let (language, name) = (self.language.tag(), escaped(self.brand.name.as_deref().unwrap_or(self.host)));
        let (title, text) = (escaped(&self.title), escaped(&self.text));
        let style = style(self.brand.color.as_deref().and_then(Color::parse).unwrap_or(DEFAULT_ACCENT));
        // The name is next to the logo, so the logo has no alternative text.
        let logo =
            logo.map(|url| format!("<img src=\"{}\" alt=\"\" width=\"48\" height=\"48\">", escaped(url.as_str())));
        let logo = logo.unwrap_or_default();
        let mut actions = String::new();
        for Action { label, href } in &self.actions {
            // Writing to a `String` cannot fail.
            let _ = writeln!(actions, "<li><a href=\"{}\">{}</a></li>", escaped(href), escaped(label));
        }
        let actions = if actions.is_empty() { actions } else { format!("<ul>\n{actions}</ul>\n") };
        format!(
            "<!doctype html>\n<html lang=\"{language}\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"robots\" content=\"noindex\">\n\
             <title>{title}</title>\n<style nonce=\"{nonce}\">{style}</style>\n</head>\n<body>\n<main>\n\
             <p class=\"brand\">{logo}<span>{name}</span></p>\n<h1>{title}</h1>\n<p>{text}</p>\n{actions}</main>\n\
             </body>\n</html>\n"
        )
    }
}

/// Sets the headers of all responses of the sign-in. No cache stores them, and no other site learns their address.
pub fn set_headers(response: &mut HttpResponseBuilder) -> &mut HttpResponseBuilder {
    response
        .insert_header((CACHE_CONTROL, "no-store"))
        .insert_header((REFERRER_POLICY, "no-referrer"))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header(("cross-origin-resource-policy", "same-origin"))
        .insert_header(("cross-origin-opener-policy", "same-origin"))
}

/// Returns the style sheet. Buttons have the brand color, with black or white text. Their border and the focus have the
/// closest color that contrasts with the background.
fn style(accent: Color) -> String {
    let text = accent.text();
    let (light, dark) = (accent.readable_on(LIGHT), accent.readable_on(DARK));
    format!(
        ":root{{color-scheme:light dark;--bg:{LIGHT};--text:#1b1d22;--muted:#50555f;--edge:{light}}}\
         @media(prefers-color-scheme:dark){{:root{{--bg:{DARK};--text:#f2f3f5;--muted:#b4b9c3;--edge:{dark}}}}}\
         *{{box-sizing:border-box}}\
         body{{margin:0;min-height:100vh;display:grid;place-items:center;padding:1.5rem 1rem;background:var(--bg);\
         color:var(--text);font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}}\
         main{{width:100%;max-width:24rem}}\
         .brand{{display:flex;align-items:center;gap:.75rem;margin:0 0 1.5rem;font-weight:600}}\
         .brand img{{width:3rem;height:3rem;object-fit:contain;flex:none}}\
         h1{{font-size:1.5rem;line-height:1.25;margin:0 0 .5rem}}\
         p{{margin:0 0 1.5rem;color:var(--muted)}}.brand{{color:var(--text)}}\
         ul{{list-style:none;margin:0;padding:0;display:grid;gap:.75rem}}\
         a{{display:block;padding:.75rem 1rem;border:2px solid var(--edge);border-radius:.5rem;background:{accent};\
         color:{text};font-weight:600;text-align:center;text-decoration:none}}\
         a:hover{{text-decoration:underline}}\
         a:focus-visible{{outline:3px solid var(--edge);outline-offset:3px}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(brand: &AuthBrand) -> HttpResponse {
        let actions = vec![Action { label: "<b>".to_owned(), href: "/\"><script>".to_owned() }];
        let (title, text) = ("Title".to_owned(), "<i>".to_owned());
        Page { language: Language::German, brand, host: "a.example", title, text, actions }.respond(StatusCode::OK)
    }

    fn policy(response: &HttpResponse) -> String {
        response.headers().get(CONTENT_SECURITY_POLICY).unwrap().to_str().unwrap().to_owned()
    }

    #[actix_web::test]
    async fn texts_cannot_become_markup() {
        let brand = AuthBrand {
            name: Some("<script>alert(1)</script>&\"'".to_owned()),
            color: Some("red;}*{display:none".to_owned()),
            logo_url: Some("https://img.example/\"onerror=alert(1)".to_owned()),
        };
        let response = page(&brand);
        assert!(policy(&response).contains("; img-src https://img.example; "));
        let body = actix_web::body::to_bytes(response.into_body()).await.unwrap();
        let body = str::from_utf8(&body).unwrap();
        assert!(!body.contains("<script") && !body.contains("<b>") && !body.contains("\"onerror"), "{body}");
        assert!(!body.contains("display:none") && body.contains("<html lang=\"de\">"), "{body}");
    }

    #[test]
    fn policy_admits_only_the_host_of_the_logo() {
        let with_logo = |url: &str| AuthBrand { logo_url: Some(url.to_owned()), ..AuthBrand::default() };
        let images = |url: &str| policy(&page(&with_logo(url))).split("; ").any(|part| part.starts_with("img-src"));
        assert!(images("https://img.example:8443/a;script-src *"));
        assert!(!policy(&page(&with_logo("https://img.example/a;script-src *"))).contains("script-src"));
        for url in ["http://img.example/a", "data:image/png,x", "", "https://", "javascript:alert(1)"] {
            assert!(!images(url), "{url}");
        }
        let without = policy(&page(&AuthBrand::default()));
        assert!(
            without.starts_with("default-src 'none'; style-src 'nonce-") && without.ends_with("frame-ancestors 'none'")
        );
    }
}

//! The mail template.

use providers::{Action, InvalidLink, MailContent};

const HOSTILE: &str = "<script>alert('1')</script> & \"x\"\r\n\u{0}-- \n{}";

fn hostile() -> MailContent {
    MailContent {
        subject: HOSTILE.to_owned(),
        heading: HOSTILE.to_owned(),
        paragraphs: vec![HOSTILE.to_owned(), "</td></table><!--".to_owned()],
        action: Some(Action::new(HOSTILE, "https://svc.example/?a=\"><script>&b='x'").unwrap()),
        footer: HOSTILE.to_owned(),
    }
}

#[test]
fn all_values_are_escaped() {
    let (html, benign) = (hostile().html(), crate::mail::mail_content().html());
    let tags = |html: &str, tag: &str| html.matches(tag).count();
    assert_eq!(tags(&html, "<script"), 0);
    assert_eq!(tags(&html, "<!--"), tags(&benign, "<!--"));
    assert_eq!(tags(&html, "</table>"), tags(&benign, "</table>"));
    assert_eq!(tags(&html, "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; &quot;x&quot;"), 5);
    assert_eq!(tags(&html, "href=\"https://svc.example/?a=%22%3E%3Cscript%3E&amp;b=%27x%27\""), 2);
}

#[test]
fn each_value_is_one_line_of_the_text() {
    let text = hostile().text();
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 7, "{text}");
    // The only signature separator is ours.
    assert_eq!(lines.iter().filter(|line| **line == "-- ").count(), 1);
}

#[test]
fn text_contains_all_values() {
    let content = MailContent {
        subject: "S".to_owned(),
        heading: "H".to_owned(),
        paragraphs: vec!["One.".to_owned(), "Two.".to_owned()],
        action: Some(Action::new("Go", "https://svc.example").unwrap()),
        footer: "F".to_owned(),
    };
    assert_eq!(content.text(), "H\n\nOne.\n\nTwo.\n\nGo:\nhttps://svc.example/\n\n-- \nF\n");
    let without = MailContent { action: None, ..content };
    assert_eq!(without.text(), "H\n\nOne.\n\nTwo.\n\n-- \nF\n");
    assert!(!without.html().contains("href"));
}

#[test]
fn html_loads_no_external_resources() {
    let html = crate::mail::mail_content().html();
    for external in ["<img", "<link", "<script", "url(", "@import"] {
        assert!(!html.contains(external), "{external}");
    }
    // The address occurs in the button, and in the readable text and its link.
    assert_eq!(html.matches("https://svc.example/invite?t=a_b%20c&amp;x=1").count(), 3);
}

#[test]
fn link_must_be_an_http_address_without_credentials() {
    for url in ["https://svc.example/a", "http://localhost:3000/?b#c"] {
        Action::new("Go", url).unwrap();
    }
    for url in
        ["", "/a", "javascript:alert(1)", "data:text/html,x", "mailto:a@b.example", "https://svc.example@evil.example/"]
    {
        assert_eq!(Action::new("Go", url), Err(InvalidLink), "{url}");
    }
}

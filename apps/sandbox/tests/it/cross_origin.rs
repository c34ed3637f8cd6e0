//! Forms of other sites are refused (CSRF).

use super::TestSandbox;

const FORMS: [&str; 10] = [
    "/app/sign-in",
    "/app/refresh",
    "/app/revoke",
    "/oauth/sign-in",
    "/oauth/sign-out",
    "/oauth/authorize",
    "/oauth/device",
    "/lending",
    "/identity/codehost",
    "/dns",
];

/// Submits a form with these headers. Returns the status of the response.
async fn submit(sandbox: &TestSandbox, path: &str, headers: &[(&str, &str)]) -> u16 {
    let mut request = sandbox.browser.post(format!("{}{path}", sandbox.base));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body("name=a.example&type=TXT&data=1&fault=none").send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn form_of_another_origin_is_refused() {
    let sandbox = TestSandbox::start().await;
    let other_port = "http://127.0.0.1:1";
    for path in FORMS.into_iter().chain(["/login/oauth/authorize", "/identity/codehost/authorize", "/unknown"]) {
        for headers in [
            &[("origin", "https://evil.example")][..],
            &[("origin", "null")],
            &[("origin", other_port)],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site")],
            &[("origin", &sandbox.base), ("sec-fetch-site", "cross-site")],
            &[("origin", "https://evil.example"), ("sec-fetch-site", "same-origin")],
        ] {
            assert_eq!(submit(&sandbox, path, headers).await, 403, "{path} {headers:?}");
        }
    }
    assert!(sandbox.text("/").await.contains("0 records"));
}

#[tokio::test]
async fn own_forms_and_other_clients_are_accepted() {
    let sandbox = TestSandbox::start().await;
    let own = [("origin", sandbox.base.as_str()), ("sec-fetch-site", "same-origin")];
    for headers in [&[][..], &own[..1], &own, &[("sec-fetch-site", "none")]] {
        for path in FORMS {
            assert_ne!(submit(&sandbox, path, headers).await, 403, "{path} {headers:?}");
        }
    }
    assert!(sandbox.text("/").await.contains("1 records"));
    // Links of other sites work.
    let link = sandbox.browser.get(format!("{}/dns", sandbox.base)).header("sec-fetch-site", "cross-site");
    assert_eq!(link.send().await.unwrap().status(), 200);
}

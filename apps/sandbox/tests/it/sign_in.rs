//! Sign-in on the page of the code host.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use serde_json::Value;
use url::Url;

use super::{TestSandbox, header};

const BACK: &str = "http://127.0.0.1:9/callback";
const VERIFIER: &str = "a-verifier-of-at-least-43-characters-as-in-rfc-7636";

fn authorize() -> String {
    let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, VERIFIER.as_bytes()));
    format!(
        "/login/oauth/authorize?client_id=svc-client&redirect_uri={BACK}&state=a%26b\
         &code_challenge={challenge}&code_challenge_method=S256"
    )
}

/// Submits the sign-in page. Returns the query parameters of the redirect.
async fn choose(sandbox: &TestSandbox, fields: &[(&str, &str)]) -> Vec<(String, String)> {
    let response = sandbox.submit(&authorize(), fields).await;
    assert_eq!(response.status(), 302);
    let back = Url::parse(&header(&response, "location")).unwrap();
    assert!(back.as_str().starts_with(BACK), "{back}");
    back.query_pairs().into_owned().collect()
}

/// Exchanges a code, and returns its user.
async fn user(sandbox: &TestSandbox, code: &str) -> Value {
    let mut body = url::form_urlencoded::Serializer::new(String::new());
    let body = body
        .extend_pairs([("grant_type", "authorization_code"), ("client_id", "svc-client")])
        .extend_pairs([("client_secret", "svc-client-hush"), ("code", code)])
        .extend_pairs([("redirect_uri", BACK), ("code_verifier", VERIFIER)])
        .finish();
    let token = format!("{}/login/oauth/access_token", sandbox.base);
    let token = sandbox.browser.post(token).header("accept", "application/json").body(body).send().await.unwrap();
    let token: Value = token.json().await.unwrap();
    let token = token["access_token"].as_str().unwrap_or_else(|| panic!("{token}"));
    let user = sandbox.browser.get(format!("{}/user", sandbox.base)).bearer_auth(token).header("user-agent", "svc");
    user.send().await.unwrap().json().await.unwrap()
}

#[tokio::test]
async fn chosen_or_new_user_signs_in() {
    let sandbox = TestSandbox::start().await;
    let page = sandbox.text(&authorize()).await;
    assert!(page.contains("Sign in as ada") && page.contains("Sign in as grace"), "{page}");
    assert!(page.contains("&amp;state=a%26b&amp;"), "{page}");

    let back = choose(&sandbox, &[("login", "grace")]).await;
    assert_eq!(back[1], ("state".to_owned(), "a&b".to_owned()));
    assert_eq!(user(&sandbox, &back[0].1).await["id"], 1906);

    let fields = [("login", "Linus"), ("name", "Linus <T>"), ("email", "linus@kernel.example")];
    let back = choose(&sandbox, &fields).await;
    let linus = user(&sandbox, &back[0].1).await;
    assert_eq!((linus["login"].as_str(), linus["email"].as_str()), (Some("linus"), Some("linus@kernel.example")));
    // The login identifies the same user, even after a restart.
    let page = sandbox.text(&authorize()).await;
    assert!(page.contains("Sign in as linus") && page.contains("Linus &lt;T&gt;"), "{page}");
    let other = TestSandbox::start().await;
    let back = choose(&other, &[("login", "linus"), ("name", ""), ("email", "")]).await;
    let again = user(&other, &back[0].1).await;
    assert_eq!((&again["id"], &again["email"]), (&linus["id"], &Value::Null));
}

#[tokio::test]
async fn access_can_be_denied_and_an_invalid_login_is_rejected() {
    let sandbox = TestSandbox::start().await;
    let back = choose(&sandbox, &[]).await;
    assert_eq!(back[0], ("error".to_owned(), "access_denied".to_owned()));
    let response = sandbox.submit(&authorize(), &[("login", "a b")]).await;
    assert_eq!(response.status(), 200);
    assert!(response.text().await.unwrap().contains("A login has 1 to 39 letters"));
    for wrong in ["/login/oauth/authorize", &authorize().replace("svc-client", "other")] {
        assert!(sandbox.get(wrong).await.status().is_client_error(), "{wrong}");
    }
}

//! Sign-in at a code host, with all requests that a browser makes.

use std::io::{BufRead as _, BufReader};
use std::process::Child;

use reqwest::header::{COOKIE, HOST, LOCATION, ORIGIN, SET_COOKIE};
use reqwest::{Client, RequestBuilder, Response};
use sandbox::CodeHostServer;

use crate::support::{Machine, Platform};

struct Fixture {
    host: CodeHostServer,
    platform: Platform,
    browser: Client,
}

impl Fixture {
    async fn new(redirects: &str) -> Self {
        let host = CodeHostServer::start().await;
        let redirects = [("SVC_CODEHOST_REDIRECTS", redirects.to_owned())];
        let settings = [&host.client().settings()[..], &redirects].concat();
        let platform = Platform::with(&settings).await;
        let browser = Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().build().unwrap();
        Self { host, platform, browser }
    }

    async fn get(&self, url: &str) -> Response {
        self.browser.get(url).send().await.unwrap()
    }

    /// Follows the redirects from the start URL to the loopback page. Returns the page's URL and fragment.
    async fn sign_in(&self, start: &str) -> (String, String) {
        let started = self.get(start).await;
        let cookie = header(&started, SET_COOKIE).split(';').next().unwrap().to_owned();
        let back = header(&self.get(&header(&started, LOCATION)).await, LOCATION);
        let finished = self.browser.get(back).header(COOKIE, cookie).send().await.unwrap();
        let (page, fragment) = header(&finished, LOCATION).split_once('#').map(|(a, b)| (a.into(), b.into())).unwrap();
        (page, fragment)
    }

    /// Returns the request that the script of the page sends.
    fn post_result(&self, page: &str, fragment: &str) -> RequestBuilder {
        let origin = page.split('/').take(3).collect::<Vec<_>>().join("/");
        self.browser.post(page).header(ORIGIN, origin).body(fragment.to_owned())
    }
}

fn header(response: &Response, name: reqwest::header::HeaderName) -> String {
    response.headers()[name].to_str().unwrap().to_owned()
}

/// Starts `svc login`. Returns the process, which waits for the browser, and the sign-in URL.
fn login(machine: &Machine) -> (Child, String) {
    let mut child = machine.command(&["login", "--no-browser"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let start = lines.find_map(|line| Some(line.unwrap().trim().to_owned()).filter(|it| it.starts_with("http")));
    // Keep reading stderr, so that the process does not block or fail.
    std::thread::spawn(move || lines.for_each(drop));
    (child, start.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_loopback_page_can_deliver_the_session() {
    let fixture = Fixture::new("http://127.0.0.1,http://localhost:3000").await;
    let mut machine = Machine::new(&fixture.platform.api);
    let (mut login, start) = login(&machine);
    let (page, fragment) = fixture.sign_in(&start).await;
    assert!(fragment.starts_with("token=svc_ses_"), "{fragment}");
    let shown = fixture.get(&page).await;
    assert_eq!(shown.status(), 200);
    let policy = header(&shown, reqwest::header::CONTENT_SECURITY_POLICY);
    assert!(policy.contains("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(shown.text().await.unwrap().contains("location.hash"));

    // The forged requests have another path, no origin, another origin, another host, or a malformed result.
    let forged = "token=svc_ses_theirs&subject=mallory";
    let wrong_path = format!("{}/AAAAAAAAAAAAAAAAAAAAAA", page.rsplit_once('/').unwrap().0);
    for (attempt, status) in [
        (fixture.post_result(&wrong_path, forged), 404),
        (fixture.browser.post(&page).body(forged), 404),
        (fixture.browser.post(&page).header(ORIGIN, "https://evil.example").body(forged), 404),
        (fixture.post_result(&page, forged).header(HOST, "evil.example"), 404),
        (fixture.post_result(&page, "subject=mallory"), 400),
        (fixture.post_result(&page, &"x".repeat(20_000)), 400),
        (fixture.browser.get(&wrong_path), 404),
    ] {
        assert_eq!(attempt.send().await.unwrap().status(), status);
    }
    assert!(login.try_wait().unwrap().is_none(), "svc login exited");

    let accepted = fixture.post_result(&page, &fragment).send().await.unwrap();
    assert_eq!(accepted.text().await.unwrap(), "You are signed in. Go back to the terminal.");
    assert!(login.wait().unwrap().success());
    let me = machine.json(&["whoami"]);
    assert_eq!((me["provider"].as_str(), me["name"].as_str()), (Some("codehost"), Some("Ada Lovelace")));
    // The page is no longer served when the process has ended.
    assert!(fixture.browser.get(&page).send().await.is_err());

    let opened = machine.browser();
    let mut login = machine.command(&["login"]).spawn().unwrap();
    let start = loop {
        if let Ok(start) = std::fs::read_to_string(&opened) {
            break start;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let (page, fragment) = fixture.sign_in(start.trim()).await;
    fixture.post_result(&page, &fragment).send().await.unwrap();
    assert!(login.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_sign_in_fails() {
    let fixture = Fixture::new("http://127.0.0.1").await;
    let machine = Machine::new(&fixture.platform.api);
    let (login, start) = login(&machine);
    fixture.host.deny(true);
    let (page, fragment) = fixture.sign_in(&start).await;
    assert!(fragment.starts_with("error=access_denied"), "{fragment}");
    fixture.post_result(&page, &fragment).send().await.unwrap();
    assert_eq!(login.wait_with_output().unwrap().status.code(), Some(1));
    assert!(!machine.credentials().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn login_fails_without_a_code_host_or_an_allowed_redirect() {
    let platform = Platform::start().await;
    Machine::new(&platform.api).svc(&["login"]).fails(1).stderr_contains("svc login --token");
    // If an installation does not allow loopback redirects, the browser shows the error.
    let fixture = Fixture::new("https://dashboard.example.org").await;
    let machine = Machine::new(&fixture.platform.api);
    let (mut login, start) = login(&machine);
    assert_eq!(fixture.get(&start).await.status(), 400);
    login.kill().unwrap();
    login.wait().unwrap();
}

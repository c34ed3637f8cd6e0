//! Signing in at a code host, with every request that a browser makes.

use std::io::{BufRead as _, BufReader};
use std::process::Child;

use reqwest::header::{COOKIE, HOST, LOCATION, ORIGIN, SET_COOKIE};
use reqwest::{Client, RequestBuilder, Response};
use sandbox::CodeHostServer;

use crate::kit::{Machine, Platform};

struct World {
    host: CodeHostServer,
    platform: Platform,
    browser: Client,
}

impl World {
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

    /// All the way from the first address to the page on this machine, and its fragment.
    async fn sign_in(&self, start: &str) -> (String, String) {
        let begun = self.get(start).await;
        let cookie = header(&begun, SET_COOKIE).split(';').next().unwrap().to_owned();
        let back = header(&self.get(&header(&begun, LOCATION)).await, LOCATION);
        let ended = self.browser.get(back).header(COOKIE, cookie).send().await.unwrap();
        let (page, fragment) = header(&ended, LOCATION).split_once('#').map(|(a, b)| (a.into(), b.into())).unwrap();
        (page, fragment)
    }

    /// What the page's script sends.
    fn hand_over(&self, page: &str, fragment: &str) -> RequestBuilder {
        let origin = page.split('/').take(3).collect::<Vec<_>>().join("/");
        self.browser.post(page).header(ORIGIN, origin).body(fragment.to_owned())
    }
}

fn header(answer: &Response, name: reqwest::header::HeaderName) -> String {
    answer.headers()[name].to_str().unwrap().to_owned()
}

/// A `svc login` that waits, and the address that it has people open.
fn login(machine: &Machine) -> (Child, String) {
    let mut child = machine.command(&["login", "--no-browser"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let start = lines.find_map(|line| Some(line.unwrap().trim().to_owned()).filter(|it| it.starts_with("http")));
    // Whatever it says later needs a reader.
    std::thread::spawn(move || lines.for_each(drop));
    (child, start.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_browser_hands_the_session_over_and_nobody_else_can() {
    let world = World::new("http://127.0.0.1,http://localhost:3000").await;
    let mut machine = Machine::new(&world.platform.api);
    let (mut login, start) = login(&machine);
    let (page, fragment) = world.sign_in(&start).await;
    assert!(fragment.starts_with("token=svc%5Fses%5F"), "{fragment}");
    let shown = world.get(&page).await;
    assert_eq!(shown.status(), 200);
    let policy = header(&shown, reqwest::header::CONTENT_SECURITY_POLICY);
    assert!(policy.contains("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(shown.text().await.unwrap().contains("location.hash"));

    // Another page, another program, another name for this machine; and what is no sign-in.
    let theirs = "token=svc_ses_theirs&subject=mallory";
    let elsewhere = format!("{}/AAAAAAAAAAAAAAAAAAAAAA", page.rsplit_once('/').unwrap().0);
    for (attempt, status) in [
        (world.hand_over(&elsewhere, theirs), 404),
        (world.browser.post(&page).body(theirs), 404),
        (world.browser.post(&page).header(ORIGIN, "https://evil.example").body(theirs), 404),
        (world.hand_over(&page, theirs).header(HOST, "evil.example"), 404),
        (world.hand_over(&page, "subject=mallory"), 400),
        (world.hand_over(&page, &"x".repeat(20_000)), 400),
        (world.browser.get(&elsewhere), 404),
    ] {
        assert_eq!(attempt.send().await.unwrap().status(), status);
    }
    assert!(login.try_wait().unwrap().is_none(), "it still waits");

    let said = world.hand_over(&page, &fragment).send().await.unwrap();
    assert_eq!(said.text().await.unwrap(), "You are signed in. Go back to the terminal.");
    assert!(login.wait().unwrap().success());
    let me = machine.json(&["whoami"]);
    assert_eq!((me["provider"].as_str(), me["name"].as_str()), (Some("codehost"), Some("Ada Lovelace")));
    // The page is gone with it.
    assert!(world.browser.get(&page).send().await.is_err());

    let opened = machine.browser();
    let mut login = machine.command(&["login"]).spawn().unwrap();
    let start = loop {
        if let Ok(start) = std::fs::read_to_string(&opened) {
            break start;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let (page, fragment) = world.sign_in(start.trim()).await;
    world.hand_over(&page, &fragment).send().await.unwrap();
    assert!(login.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_no_at_the_code_host_is_told() {
    let world = World::new("http://127.0.0.1").await;
    let machine = Machine::new(&world.platform.api);
    let (login, start) = login(&machine);
    world.host.deny(true);
    let (page, fragment) = world.sign_in(&start).await;
    assert!(fragment.starts_with("error=access%5Fdenied"), "{fragment}");
    world.hand_over(&page, &fragment).send().await.unwrap();
    assert_eq!(login.wait_with_output().unwrap().status.code(), Some(1));
    assert!(!machine.credentials().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_can_sign_in_so_it_is_said_at_once() {
    let platform = Platform::start().await;
    Machine::new(&platform.api).svc(&["login"]).fails(1).says("svc login --token");
    // A deployment that allows no loopback address says so in the browser.
    let world = World::new("https://dashboard.example.org").await;
    let machine = Machine::new(&world.platform.api);
    let (mut login, start) = login(&machine);
    assert_eq!(world.get(&start).await.status(), 400);
    login.kill().unwrap();
    login.wait().unwrap();
}

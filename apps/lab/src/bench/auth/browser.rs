//! A browser that signs in.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqwest::header::{COOKIE, HOST, HeaderMap, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};

use super::PROVIDER;
use crate::bench::platform::{Platform, Project};

/// Signs in visitors of a project.
pub struct Browser<'a> {
    client: Client,
    platform: &'a Platform,
    project: &'a Project<'a>,
    /// The number of sign-ins, each of which has its own client address.
    sign_ins: AtomicU32,
}

impl<'a> Browser<'a> {
    pub fn new(platform: &'a Platform, project: &'a Project<'a>) -> Result<Self> {
        let client = Client::builder().redirect(Policy::none()).no_proxy().build()?;
        Ok(Self { client, platform, project, sign_ins: AtomicU32::new(0) })
    }

    /// Signs a person in. Returns the session cookie, and the time of the node for the return from the provider.
    pub async fn sign_in(&self, person: &str) -> Result<(String, Duration)> {
        self.sign_ins.fetch_add(1, Ordering::Relaxed);
        let begun = self.get(&format!("/__svc/auth/login/{}", PROVIDER.as_str()), "").await?;
        let flow = cookie(&begun)?;
        let form = format!("person={person}");
        let chosen = self.client.post(location(&begun)?).body(form);
        let chosen = chosen.header("content-type", "application/x-www-form-urlencoded").send().await?;
        let callback = Url::parse(location(chosen.headers())?)?;
        let path = format!("{}?{}", callback.path(), callback.query().unwrap_or_default());
        let start = Instant::now();
        let headers = self.get(&path, &flow).await?;
        let time = start.elapsed();
        ensure!(location(&headers)? == "/", "the sign-in failed");
        Ok((cookie(&headers)?, time))
    }

    async fn get(&self, path: &str, cookies: &str) -> Result<HeaderMap> {
        let request = self.client.get(format!("http://{}{path}", self.platform.edge));
        let address = Ipv4Addr::from_bits(0x0a00_0000 + self.sign_ins.load(Ordering::Relaxed));
        let request = request.header(HOST, &self.project.hostname).header("x-forwarded-for", address.to_string());
        let response = request.header(COOKIE, cookies).send().await?;
        ensure!(response.status().as_u16() == 303, "{path} returned {}", response.status());
        Ok(response.headers().clone())
    }
}

fn location(headers: &HeaderMap) -> Result<&str> {
    Ok(headers.get(LOCATION).context("no redirect")?.to_str()?)
}

/// Returns the first cookie that is set.
fn cookie(headers: &HeaderMap) -> Result<String> {
    let cookie = headers.get(SET_COOKIE).context("no cookie")?.to_str()?;
    Ok(cookie.split(';').next().unwrap_or_default().to_owned())
}

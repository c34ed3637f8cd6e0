//! A code host sign-in, as a browser performs it.

use anyhow::{Context as _, Result};
use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Client, Response, Url};

/// Follows all redirects. Returns the fragment of the last one: `token=…` or `error=…`.
pub async fn sign_in(client: &Client, base: &str) -> Result<String> {
    let redirect: String = base.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let start = client.get(format!("{base}/v1/auth/codehost/start?redirect={redirect}")).send().await?;
    let cookie = require_header(&start, SET_COOKIE)?.split(';').next().unwrap_or_default().to_owned();
    let authorization = client.get(require_header(&start, LOCATION)?).send().await?;
    let callback = client.get(require_header(&authorization, LOCATION)?).header(COOKIE, cookie).send().await?;
    let callback = Url::parse(&require_header(&callback, LOCATION)?)?;
    let fragment = Url::parse(&format!("{base}?{}", callback.fragment().context("no fragment")?))?;
    let (name, value) = fragment.query_pairs().next().context("an empty fragment")?;
    Ok(format!("{name}={value}"))
}

fn require_header(response: &Response, name: reqwest::header::HeaderName) -> Result<String> {
    let found = response.headers().get(&name).with_context(|| format!("{} without {name}", response.status()))?;
    Ok(found.to_str()?.to_owned())
}

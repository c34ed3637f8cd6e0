//! A browser that signs in at the code host.

use anyhow::{Context as _, Result};
use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Client, Response, Url};

/// Goes all the way round. Gives the fragment that it ends with: `token=…` or `error=…`.
pub async fn sign_in(client: &Client, base: &str) -> Result<String> {
    let redirect: String = base.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let begun = client.get(format!("{base}/v1/auth/codehost/start?redirect={redirect}")).send().await?;
    let cookie = header(&begun, SET_COOKIE)?.split(';').next().unwrap_or_default().to_owned();
    let back = client.get(header(&begun, LOCATION)?).send().await?;
    let ended = client.get(header(&back, LOCATION)?).header(COOKIE, cookie).send().await?;
    let ended = Url::parse(&header(&ended, LOCATION)?)?;
    let fragment = Url::parse(&format!("{base}?{}", ended.fragment().context("no fragment")?))?;
    let (name, value) = fragment.query_pairs().next().context("an empty fragment")?;
    Ok(format!("{name}={value}"))
}

fn header(response: &Response, name: reqwest::header::HeaderName) -> Result<String> {
    let found = response.headers().get(&name).with_context(|| format!("{} without {name}", response.status()))?;
    Ok(found.to_str()?.to_owned())
}

//! Requests per second of the node beside nginx.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use super::platform::{Platform, Project};
use crate::bench::machine::installed;
use crate::bench::run::median;
use crate::bench::wrk::{Load, Wrk};

/// Runs of each, in turns.
const ROUNDS: usize = 3;

/// What has to be installed.
pub struct Programs {
    pub nginx: PathBuf,
    pub wrk: Wrk,
}

impl Programs {
    pub fn find() -> Result<Self> {
        Ok(Self { nginx: installed("nginx", "nginx-light")?, wrk: Wrk::find()? })
    }
}

/// 10 KiB that look like a page to whoever compresses it.
pub fn page() -> Vec<u8> {
    let paragraphs = (0_u32..).map(|number| {
        let word = number.wrapping_mul(2_654_435_761);
        format!("<p id=\"p{number}\">Paragraph {word:08x} says the same as the one before it, in other words.</p>\n")
    });
    paragraphs.flat_map(String::into_bytes).take(10 * 1024).collect()
}

/// Prints a row for each kind of request.
pub async fn compare(platform: &Platform, nginx: SocketAddr, load: &Load<'_>) -> Result<()> {
    let project = platform.project("page").await?;
    project.deploy(&[("assets/page.html", &page())]).await?;
    let node =
        Side { name: "node", url: format!("http://{}/page.html", platform.edge), host: project.hostname.clone() };
    let nginx = Side { name: "nginx", url: format!("http://{nginx}/page.html"), host: nginx.to_string() };
    until_compressed(platform, &project).await?;

    println!("\n10 KiB, {} connections kept alive, {} s, median of {ROUNDS}\n", load.connections, load.seconds);
    println!("| request | | requests/s | p50 ms | p99 ms | errors | ratio |\n|---|---|---|---|---|---|---|");
    for kind in [Kind::Plain, Kind::Gzip, Kind::NotModified] {
        let sides = [(&nginx, kind.headers(platform, &nginx).await?), (&node, kind.headers(platform, &node).await?)];
        let mut runs = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for ((side, headers), runs) in sides.iter().zip(&mut runs) {
                let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
                runs.push(load.run(&side.url, &headers).await?);
            }
        }
        let [of_nginx, of_node] = runs.map(|runs| median(&runs));
        println!("{}", of_nginx.row(kind.name(), nginx.name, 1.0));
        println!("{}", of_node.row("", node.name, of_node.rate / of_nginx.rate));
    }
    Ok(())
}

struct Side {
    name: &'static str,
    url: String,
    host: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Gzip,
    NotModified,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::NotModified => "304",
        }
    }

    /// What is asked with, after it was seen to be answered as it should.
    async fn headers(self, platform: &Platform, side: &Side) -> Result<Vec<(&'static str, String)>> {
        let mut headers = vec![("Host", side.host.clone())];
        match self {
            Self::Plain => {}
            Self::Gzip => headers.push(("Accept-Encoding", "gzip".to_owned())),
            Self::NotModified => {
                let etag = platform.get(&side.url, &headers).await?.headers().get("etag").cloned();
                headers.push(("If-None-Match", etag.context("no ETag")?.to_str()?.to_owned()));
            }
        }
        let answer = platform.get(&side.url, &headers).await?;
        let (status, coding) = (answer.status().as_u16(), answer.headers().contains_key("content-encoding"));
        let expected = if self == Self::NotModified { 304 } else { 200 };
        ensure!(
            (status, coding) == (expected, self == Self::Gzip),
            "{} answers {status} to {}",
            side.name,
            self.name()
        );
        Ok(headers)
    }
}

async fn until_compressed(platform: &Platform, project: &Project<'_>) -> Result<()> {
    project.until_served("/page.html", |answer| answer.status().as_u16() == 200).await?;
    let headers = [("Host", project.hostname.clone()), ("Accept-Encoding", "gzip".to_owned())];
    let url = format!("http://{}/page.html", platform.edge);
    while !platform.get(&url, &headers).await?.headers().contains_key("content-encoding") {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    Ok(())
}

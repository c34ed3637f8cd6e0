//! Comparison of the node's requests per second with nginx.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::time::sleep;

use crate::bench::machine::find_installed;
use crate::bench::platform::{Platform, Project};
use crate::bench::report::Report;
use crate::bench::wrk::{Load, Wrk};

/// The number of runs per side, alternating.
const ROUNDS: usize = 3;
/// The longest wait for the compressed page.
const COMPRESSION_TIMEOUT: Duration = Duration::from_secs(60);

/// The required programs.
pub struct Programs {
    pub nginx: PathBuf,
    pub wrk: Wrk,
}

impl Programs {
    pub fn find() -> Result<Self> {
        Ok(Self { nginx: find_installed("nginx", "nginx-light")?, wrk: Wrk::find()? })
    }
}

/// Returns a page of 10 KiB that compresses like typical HTML.
pub fn page() -> Vec<u8> {
    let paragraphs = (0_u32..).map(|number| {
        let word = number.wrapping_mul(2_654_435_761);
        format!(
            "<p id=\"p{number}\">Paragraph {word:08x} repeats the text of every other paragraph on this page.</p>\n"
        )
    });
    paragraphs.flat_map(String::into_bytes).take(10 * 1024).collect()
}

/// Adds two rows per kind of request: nginx and the node.
pub async fn compare(report: &mut Report, platform: &Platform, nginx: SocketAddr, load: &Load<'_>) -> Result<()> {
    let project = platform.create_project("page").await?;
    project.deploy(&[("assets/page.html", &page())]).await?;
    let node =
        Side { name: "node", url: format!("http://{}/page.html", platform.edge), host: project.hostname.clone() };
    let nginx = Side { name: "nginx", url: format!("http://{nginx}/page.html"), host: nginx.to_string() };
    wait_until_compressed(platform, &project).await?;

    report.paragraph(&format!(
        "**Requests.** A page of 10 KiB, {} connections kept alive, {ROUNDS} runs of {} s.",
        load.connections, load.seconds
    ))?;
    report.comparison_columns(&[])?;
    for kind in [Kind::Plain, Kind::Gzip, Kind::NotModified] {
        let sides = [(&nginx, kind.headers(platform, &nginx).await?), (&node, kind.headers(platform, &node).await?)];
        let mut runs = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for ((side, headers), runs) in sides.iter().zip(&mut runs) {
                let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
                runs.push(load.run(&side.url, &headers).await?);
            }
        }
        report.comparison(kind.name(), &[(nginx.name, &runs[0]), (node.name, &runs[1])])?;
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

    /// Returns the request headers after checking that the response is as expected.
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
        let response = platform.get(&side.url, &headers).await?;
        let (status, coding) = (response.status().as_u16(), response.headers().contains_key("content-encoding"));
        let expected = if self == Self::NotModified { 304 } else { 200 };
        ensure!(
            (status, coding) == (expected, self == Self::Gzip),
            "{} returned {status} for {}",
            side.name,
            self.name()
        );
        Ok(headers)
    }
}

async fn wait_until_compressed(platform: &Platform, project: &Project<'_>) -> Result<()> {
    project.wait_until_served("/page.html").await?;
    let headers = [("Host", project.hostname.clone()), ("Accept-Encoding", "gzip".to_owned())];
    let url = format!("http://{}/page.html", platform.edge);
    let start = Instant::now();
    while !platform.get(&url, &headers).await?.headers().contains_key("content-encoding") {
        ensure!(start.elapsed() < COMPRESSION_TIMEOUT, "the node did not compress the page in time");
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

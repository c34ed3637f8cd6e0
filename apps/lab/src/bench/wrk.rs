//! wrk and its output.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;
use xtask::debian::Unpacked;

use super::machine::find_installed;
use super::run::Run;

/// The wrk program, installed or unpacked from its package.
pub struct Wrk {
    program: PathBuf,
    /// The folder with its libraries, if it is not installed.
    libraries: Option<PathBuf>,
}

/// The number of connections and the duration of a run.
pub struct Load<'a> {
    pub wrk: &'a Wrk,
    pub seconds: u32,
    pub connections: u32,
}

impl Wrk {
    pub fn find() -> Result<Self> {
        if let Ok(program) = find_installed("wrk", "wrk") {
            return Ok(Self { program, libraries: None });
        }
        let unpacked = Unpacked::obtain("wrk", &["wrk"])?;
        Ok(Self { program: unpacked.file("usr/bin/wrk")?, libraries: Some(unpacked.libraries()) })
    }

    /// Builds a command without arguments.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}

impl Load<'_> {
    /// Requests one URL at full load.
    pub async fn run(&self, url: &str, headers: &[(&str, &str)]) -> Result<Run> {
        let mut wrk = self.wrk.command();
        for (name, value) in headers {
            wrk.args(["-H", &format!("{name}: {value}")]);
        }
        self.measure(wrk, url).await
    }

    /// Sends the requests of a script at full load.
    pub async fn script(&self, url: &str, script: &Path) -> Result<Run> {
        let mut wrk = self.wrk.command();
        wrk.arg("-s").arg(script);
        self.measure(wrk, url).await
    }

    async fn measure(&self, mut wrk: Command, url: &str) -> Result<Run> {
        wrk.args(["--latency", "-t2", &format!("-c{}", self.connections), &format!("-d{}s", self.seconds)]);
        let output = wrk.arg(url).output().await?;
        ensure!(output.status.success(), "wrk: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        let printed = String::from_utf8(output.stdout)?;
        Run::parse(&printed).with_context(|| format!("unexpected wrk output:\n{printed}"))
    }
}

impl Run {
    fn parse(printed: &str) -> Option<Self> {
        let after = |label: &str| Some(printed.lines().find_map(|line| line.trim().strip_prefix(label))?.trim());
        let sockets = after("Socket errors:").unwrap_or_default().split(',');
        let broken = sockets.filter_map(|part| part.split_whitespace().last()?.parse::<u64>().ok()).sum::<u64>();
        let refused =
            after("Non-2xx or 3xx responses:").and_then(|count| count.parse::<u64>().ok()).unwrap_or_default();
        Some(Self {
            rate: after("Requests/sec:")?.parse().ok()?,
            p50: milliseconds(after("50%")?)?,
            p99: milliseconds(after("99%")?)?,
            errors: broken + refused,
        })
    }
}

fn milliseconds(text: &str) -> Option<f64> {
    let (number, unit) = text.split_at(text.find(|it: char| it.is_ascii_alphabetic())?);
    let unit = match unit {
        "us" => 0.001,
        "ms" => 1.0,
        "s" => 1000.0,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrk_output_is_parsed() {
        let printed = "  Latency Distribution\n     50%  780.00us\n     75%    1.20ms\n     99%    2.50ms\n  10 requests in 1s\n\
            \n  Socket errors: connect 1, read 2, write 0, timeout 3\n  Non-2xx or 3xx responses: 4\nRequests/sec:  43210.50\n";
        assert_eq!(Run::parse(printed), Some(Run { rate: 43210.5, p50: 0.78, p99: 2.5, errors: 10 }));
        assert_eq!(Run::parse("unable to connect"), None);
    }
}

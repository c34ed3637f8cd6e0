//! `ci`: all checks, ordered so that each step reuses the build results of the previous ones.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;
use xtask::process::Signals;
use xtask::workspace::{cargo, format_seconds};

pub async fn run() -> Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let mut durations: Vec<(&str, Duration)> = Vec::new();
    let mut failed = None;
    for (name, command) in steps()? {
        println!("── {name}");
        let start = Instant::now();
        let status = signals.run(command).await?;
        durations.push((name, start.elapsed()));
        if !status.success() {
            failed = Some(name);
            break;
        }
    }
    println!();
    for (name, duration) in &durations {
        let outcome = if failed == Some(name) { "FAILED" } else { "ok" };
        println!("  {name:<12} {outcome:<6} {:>8}", format_seconds(*duration));
    }
    if !has_deny() {
        println!("  deny         NOT RUN: cargo-deny is not installed (`cargo install --locked cargo-deny`)");
    }
    Ok(if failed.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the steps: first those without a build, then type checks, then builds.
fn steps() -> Result<Vec<(&'static str, Command)>> {
    let xtask = |name: &str| cargo(&["xtask", name]);
    let mut doc = cargo(&["doc", "--workspace", "--no-deps"])?;
    doc.env("RUSTDOCFLAGS", "-Dwarnings");
    let mut codegen = xtask("codegen")?;
    codegen.arg("--check");
    let mut steps = vec![("fmt", cargo(&["fmt", "--all", "--check"])?), ("invariants", xtask("invariants")?)];
    if has_deny() {
        steps.push(("deny", cargo(&["deny", "check", "bans", "licenses", "sources"])?));
    }
    let clippy = ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    steps.push(("clippy", cargo(&clippy)?));
    steps.push(("doc", doc));
    steps.push(("test", xtask("test")?));
    steps.push(("codegen", codegen));
    Ok(steps)
}

fn has_deny() -> bool {
    let version = Command::new("cargo-deny").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

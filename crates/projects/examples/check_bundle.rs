//! Validates a bundle and prints a summary or the error:
//! `cargo run -p projects --example check_bundle -- [--plan free|pro] [file]`. Without a file, it reads standard input.

use std::fs::File;
use std::io::{self, Read};
use std::process::ExitCode;

use projects::bundle::{self, BundleError, Contents};
use projects::{BundleLimits, Plan, PlanLimits};

fn main() -> ExitCode {
    match check() {
        Ok(Ok(contents)) => {
            summarize(&contents);
            ExitCode::SUCCESS
        }
        Ok(Err(error)) => {
            println!("error: {error}");
            match error {
                BundleError::Invalid { reason, entry } => {
                    println!("reason: {}", reason.as_str());
                    entry.iter().for_each(|entry| println!("entry: {entry}"));
                }
                BundleError::TooLarge { limit, max } => println!("limit: {} {max}", limit.as_str()),
                BundleError::Io(cause) | BundleError::Visit(cause) => println!("cause: {cause}"),
            }
            ExitCode::FAILURE
        }
        Err(usage) => {
            eprintln!("{usage}");
            ExitCode::FAILURE
        }
    }
}

fn check() -> Result<Result<Contents, BundleError>, String> {
    let (mut plan, mut path) = (Plan::Free, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--plan" => {
                plan = arguments.next().unwrap_or_default().parse().map_err(|_| "--plan must be free or pro")?
            }
            _ if argument.starts_with('-') || path.is_some() => {
                return Err("usage: check_bundle [--plan free|pro] [file]".into());
            }
            _ => path = Some(argument),
        }
    }
    let input: Box<dyn Read> = match path {
        Some(path) => Box::new(File::open(&path).map_err(|error| format!("{path}: {error}"))?),
        None => Box::new(io::stdin().lock()),
    };
    let PlanLimits { bundle: BundleLimits { compressed, unpacked, entries }, .. } =
        *projects::Limits::default().for_plan(plan);
    let limits = bundle::Limits { compressed, unpacked, entries, names: bundle::MAX_FILE_NAMES_BYTES };
    Ok(bundle::read(input, &limits, |_| Ok(())))
}

fn summarize(contents: &Contents) {
    let manifest = &contents.manifest;
    println!("entries: {}", contents.entry_count);
    println!("assets: {}", contents.asset_count);
    println!("unpacked: {} bytes", contents.unpacked_bytes);
    println!("worker: {}", if contents.has_worker { manifest.main_path() } else { "none" });
    let resources = [
        ("auth", manifest.auth),
        ("database", manifest.database),
        ("email", manifest.email),
        ("ai", manifest.ai),
        ("storage", manifest.storage),
    ];
    let declared: Vec<&str> = resources.iter().filter(|(_, declared)| *declared).map(|(name, _)| *name).collect();
    println!("declares: {}", if declared.is_empty() { "nothing".to_owned() } else { declared.join(" ") });
}

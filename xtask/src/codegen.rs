//! Files that are derived, so that nobody edits what would drift: the schemas as diesel sees them, the reference as the
//! programs know it, and the client as the reference describes it.
//!
//! The schemas come first and are written before anything is built: the programs compile against them. The client comes
//! last, and what writes the reference is built without it: a client that no longer compiles is written anew.

mod catalog;
mod client;
mod file;
mod schema;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use kernel::Secret;
use store::migrations::{self, Migrator};
use xtask::postgres::Cluster;
use xtask::process::Signals;
use xtask::workspace;

use file::File;

#[derive(clap::Args)]
pub struct Args {
    /// Write nothing; fail when a file differs from what would be written
    #[arg(long)]
    check: bool,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let root = workspace::root()?;
    let mut differing = settle(&root, schemas(&root).await?, args.check)?;
    // Where it is checked, the tests were just built or will be; while writing, they may not compile yet.
    let mut build = workspace::cargo(if args.check { workspace::BUILD_TESTED } else { workspace::BUILD_SERVICES })?;
    build.arg("--quiet");
    ensure!(signals.run(build).await?.success(), "the programs do not build");
    differing.extend(settle(&root, described(&workspace::binaries(false)?)?, args.check)?);
    if args.check && !differing.is_empty() {
        bail!("not as `cargo xtask codegen` would write them: {}", differing.join(", "));
    }
    for path in differing {
        println!("{path}");
    }
    Ok(ExitCode::SUCCESS)
}

async fn schemas(root: &Path) -> Result<Vec<File>> {
    let cluster = Cluster::test()?;
    let mut conn = migrations::connect(Secret::new(cluster.url("postgres"))).await?;
    Migrator::default().up(&mut conn).await?;
    schema::files(&mut conn, root).await
}

/// The reference, and the client that follows from it.
fn described(programs: &Path) -> Result<Vec<File>> {
    let server = programs.join("svc-server");
    let [node, sandbox] = ["svc-node", "svc-sandbox"].map(|program| output(&programs.join(program), &["--settings"]));
    let settings = [output(&server, &["--print", "settings"])?, node?, sandbox?].join("\n");
    let settings =
        format!("# Settings\n\nWritten by `cargo xtask codegen` from the programs' own tables.\n\n{settings}");
    let document = output(&server, &["--print", "openapi"])?;
    let mut files = client::files(&document)?;
    files.extend([
        ("docs/openapi.json".to_owned(), document),
        ("docs/convergence.schema.json".to_owned(), output(&server, &["--print", "nodes"])?),
        ("docs/errors.md".to_owned(), output(&server, &["--print", "errors"])?),
        ("docs/routes.md".to_owned(), output(&server, &["--print", "routes"])?),
        ("docs/settings.md".to_owned(), settings),
    ]);
    Ok(files)
}

fn output(program: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output().with_context(|| format!("{}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} {}: {}", program.display(), arguments.join(" "), said.trim_end());
    Ok(String::from_utf8(output.stdout)?)
}

/// Writes the files that differ and removes stale ones, or with `check` only compares. Returns the differing paths.
fn settle(root: &Path, files: Vec<File>, check: bool) -> Result<Vec<String>> {
    let mut differing = stale(root, &files)?;
    if !check {
        for path in &differing {
            std::fs::remove_file(root.join(path)).with_context(|| path.clone())?;
        }
    }
    for (path, text) in files {
        let file = root.join(&path);
        if std::fs::read_to_string(&file).is_ok_and(|found| found == text) {
            continue;
        }
        if !check {
            std::fs::create_dir_all(file.parent().unwrap_or(root)).with_context(|| path.clone())?;
            std::fs::write(&file, text).with_context(|| path.clone())?;
        }
        differing.push(path);
    }
    Ok(differing)
}

/// Files in a generated folder that are no longer generated, such as that of a removed area.
fn stale(root: &Path, files: &[File]) -> Result<Vec<String>> {
    let within = format!("{}/", client::FOLDER);
    if !files.iter().any(|(path, _)| path.starts_with(&within)) || !root.join(client::FOLDER).exists() {
        return Ok(Vec::new());
    }
    let mut stale = Vec::new();
    for entry in std::fs::read_dir(root.join(client::FOLDER))? {
        let path = within.clone() + &entry?.file_name().to_string_lossy();
        if !files.iter().any(|(generated, _)| *generated == path) {
            stale.push(path);
        }
    }
    stale.sort();
    Ok(stale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_files_are_reported_and_removed() {
        let root = tempfile::tempdir().unwrap();
        let file = |name: &str| (format!("{}/{name}", client::FOLDER), format!("//! {name}\n"));
        let generate =
            |names: &[&str], check| settle(root.path(), names.iter().map(|name| file(name)).collect(), check);
        assert_eq!(generate(&["dns.rs", "mail.rs"], false).unwrap(), [file("dns.rs").0, file("mail.rs").0]);
        assert_eq!(generate(&["dns.rs", "mail.rs"], true).unwrap(), [""; 0]);

        assert_eq!(generate(&["dns.rs"], true).unwrap(), [file("mail.rs").0]);
        assert_eq!(generate(&["dns.rs"], false).unwrap(), [file("mail.rs").0]);
        assert_eq!(generate(&["dns.rs"], true).unwrap(), [""; 0]);
        assert!(!root.path().join(file("mail.rs").0).exists());

        // Files of other folders say nothing about this one.
        assert_eq!(settle(root.path(), vec![], true).unwrap(), [""; 0]);
    }
}

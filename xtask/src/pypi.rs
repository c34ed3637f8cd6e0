//! Installs wheels from PyPI. The requirements, in pip's format, contain the digests of the accepted wheels.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::obtain;

/// Installs wheels into a virtual environment and returns its program folder. The requirements contain all dependencies.
pub fn programs(name: &str, requirements: &str) -> Result<PathBuf> {
    let folder = obtain::folder(name, requirements, |folder| {
        obtain::run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        install(folder, requirements, Command::new(folder.join("bin/pip")).arg("install"))
    })?;
    Ok(folder.join("bin"))
}

/// Unpacks wheels into the folder, without other dependencies.
pub fn unpack(folder: &Path, requirements: &str) -> Result<()> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--no-deps", "--no-compile", "--target"]).arg(folder);
    install(folder, requirements, &mut pip)
}

fn install(folder: &Path, requirements: &str, pip: &mut Command) -> Result<()> {
    // pip accepts hashes only in a requirements file.
    let file = folder.join("requirements.txt");
    fs::write(&file, requirements)?;
    pip.args(["--quiet", "--disable-pip-version-check", "--retries", "0", "--require-hashes"]);
    pip.args(["--only-binary", ":all:", "--requirement"]).arg(&file);
    obtain::run(pip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(folder: &Path, arguments: &[&str]) -> Option<String> {
        let output = Command::new("python3").current_dir(folder).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn only_wheels_with_listed_digests_are_installed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        if run(folder, &["-m", "pip", "--version"]).is_none() {
            return eprintln!("SKIPPED: python3 has no pip");
        }
        let (info, wheel) = ("probe-1.dist-info", "probe-1-py3-none-any.whl");
        fs::create_dir(folder.join(info)).unwrap();
        let files = [
            ("METADATA", "Metadata-Version: 2.1\nName: probe\nVersion: 1\n"),
            ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            (
                "RECORD",
                "probe.py,,\nprobe-1.dist-info/METADATA,,\nprobe-1.dist-info/WHEEL,,\nprobe-1.dist-info/RECORD,,\n",
            ),
        ];
        for (name, content) in files {
            fs::write(folder.join(info).join(name), content).unwrap();
        }
        fs::write(folder.join("probe.py"), "").unwrap();
        run(folder, &["-m", "zipfile", "-c", wheel, info, "probe.py"]).unwrap();
        let output = run(folder, &["-m", "pip", "hash", wheel]).unwrap();
        let digest = output.lines().find(|line| line.starts_with("--hash=")).unwrap();
        let other = format!("--hash=sha256:{}", "0".repeat(64));
        for (hashes, is_accepted) in [("", false), (&*other, false), (digest, true)] {
            let target = tempfile::tempdir().unwrap();
            let requirements = format!("--no-index\n--find-links {}\nprobe==1 {hashes}\n", folder.display());
            assert_eq!(unpack(target.path(), &requirements).is_ok(), is_accepted, "{hashes}");
            assert_eq!(target.path().join("probe.py").exists(), is_accepted, "{hashes}");
        }
    }
}

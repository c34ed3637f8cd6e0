//! Debian packages, unpacked below `.svc` with the dependencies that are not installed. Nothing is installed, no
//! service starts, and no root access is needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::obtain::{self, run};

/// A folder with the unpacked files of packages.
pub struct Unpacked {
    root: PathBuf,
}

impl Unpacked {
    /// Downloads and unpacks these packages once, as `name`.
    pub fn obtain(name: &str, packages: &[&str]) -> Result<Self> {
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let release = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).unwrap_or("unknown");
        let root = obtain::folder(&format!("{name}-{release}"), &packages.join("\n"), |root| {
            let archives = root.join("archives");
            fs::create_dir_all(archives.join("partial"))?;
            download(&archives, packages)?;
            unpack(&archives, root)?;
            Ok(fs::remove_dir_all(archives)?)
        })?;
        Ok(Self { root })
    }

    /// Returns the path of a file in the packages, given its path below `/`.
    pub fn file(&self, path: &str) -> Result<PathBuf> {
        let found = Some(self.root.join(path)).filter(|file| file.exists());
        found.with_context(|| format!("none of the packages contains /{path}"))
    }

    /// Returns the folder.
    pub fn into_root(self) -> PathBuf {
        self.root
    }

    /// Returns the library folder, for `LD_LIBRARY_PATH`.
    pub fn libraries(&self) -> PathBuf {
        self.root.join(library_folder())
    }
}

/// Returns the library folder of this machine's architecture, relative to `/`.
pub fn library_folder() -> String {
    format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH)
}

/// Downloads the packages, even if they are installed, and their missing dependencies. Disables apt's locks, which need
/// root, because the target folder is private.
fn download(archives: &Path, packages: &[&str]) -> Result<()> {
    let download = || {
        let mut apt = Command::new("apt-get");
        apt.args(["install", "-qq", "-y", "--no-install-recommends", "--reinstall", "--download-only"]);
        apt.args(["-o", "Debug::NoLocking=true", "-o"]).arg(format!("Dir::Cache::archives={}", archives.display()));
        run(apt.args(packages))
    };
    // Update missing or outdated package lists, which needs root.
    download().or_else(|error| {
        run(Command::new("apt-get").args(["update", "-qq"])).with_context(|| format!("{error:#}"))?;
        download()
    })
}

fn unpack(archives: &Path, root: &Path) -> Result<()> {
    for archive in fs::read_dir(archives)? {
        let archive = archive?.path();
        if archive.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg-deb").arg("--extract").arg(archive).arg(root))?;
        }
    }
    Ok(())
}

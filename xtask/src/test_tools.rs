//! Third-party programs and libraries that tests run unmodified. Packages of npm and PyPI are pinned by digest, with all
//! their dependencies, so that results do not change without a change here. Debian packages are those of the release.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xtask::debian::Unpacked;
use xtask::{npm, obtain, pypi};

/// Packages that are installed together.
struct Tools {
    /// The name of their folder.
    folder: &'static str,
    /// The names in messages.
    names: &'static str,
    source: Source,
    /// The environment variables that tests receive. The value is a path in the folder; `""` is the folder itself.
    variables: &'static [(&'static str, &'static str)],
}

enum Source {
    /// npm packages with their digests: a lock file. The folder is `node_modules`.
    Npm(&'static str),
    /// Wheels with their digests, in a virtual environment, for Python 3.11 to 3.14. The folder is that of its programs.
    Python(&'static str),
    /// Wheels with their digests, for Python 3.11 to 3.14.
    Wheels(&'static str),
    /// Debian packages.
    Debian(&'static [&'static str]),
}

const ALL: [Tools; 9] = [
    // Clients of the PowerDNS API. pebble is the ACME test server of lego.
    Tools {
        folder: "octodns",
        names: "octodns",
        source: Source::Python(include_str!("test_tools/octodns.txt")),
        variables: &[("SVC_TEST_OCTODNS", "octodns-sync")],
    },
    Tools {
        folder: "lego",
        names: "lego",
        source: Source::Debian(&["lego", "pebble"]),
        variables: &[("SVC_TEST_LEGO", "usr/bin/lego"), ("SVC_TEST_PEBBLE", "usr/bin/pebble")],
    },
    // Validators of the OpenAPI document.
    Tools {
        folder: "openapi-validators",
        names: "schemathesis and openapi-spec-validator",
        source: Source::Python(include_str!("test_tools/openapi-validators.txt")),
        variables: &[("SVC_TEST_SCHEMATHESIS", "schemathesis"), ("SVC_TEST_SPEC_VALIDATOR", "openapi-spec-validator")],
    },
    Tools {
        folder: "spectral",
        names: "spectral",
        source: Source::Npm(include_str!("test_tools/spectral-package-lock.json")),
        variables: &[("SVC_TEST_SPECTRAL", ".bin/spectral")],
    },
    // The rules of accessibility, for the pages of app sign-in.
    Tools {
        folder: "axe",
        names: "axe-core",
        source: Source::Npm(include_str!("test_tools/axe-package-lock.json")),
        variables: &[("SVC_TEST_AXE", "axe-core/axe.min.js")],
    },
    // OAuth client libraries, with jose for the validation of access tokens, and requests as Authlib's HTTP client.
    Tools {
        folder: "oauth-libraries",
        names: "oauth4webapi and openid-client",
        source: Source::Npm(include_str!("test_tools/oauth-package-lock.json")),
        variables: &[("SVC_TEST_OAUTH_LIBRARIES", "")],
    },
    Tools {
        folder: "authlib",
        names: "authlib",
        source: Source::Wheels(include_str!("test_tools/authlib.txt")),
        variables: &[("SVC_TEST_AUTHLIB", "")],
    },
    // Clients of git, and of SSH.
    Tools {
        folder: "git-clients",
        names: "dulwich and paramiko",
        source: Source::Python(include_str!("test_tools/git-clients.txt")),
        variables: &[("SVC_TEST_GIT_CLIENTS", "python3")],
    },
    Tools {
        folder: "isomorphic-git",
        names: "isomorphic-git",
        source: Source::Npm(include_str!("test_tools/isomorphic-git-package-lock.json")),
        variables: &[("SVC_TEST_ISOMORPHIC_GIT", "")],
    },
];

/// Returns the environment variables that pass the packages to tests. Prints which tests are skipped if a registry is
/// unavailable.
pub fn find() -> Vec<(&'static str, PathBuf)> {
    let mut found = Vec::new();
    for tools in ALL {
        match tools.obtain() {
            Ok(variables) => found.extend(variables),
            Err(error) => println!("  {:<9} not available ({error:#}): tests that need it are skipped", tools.names),
        }
    }
    found
}

impl Tools {
    fn obtain(&self) -> Result<Vec<(&'static str, PathBuf)>> {
        let name = self.folder;
        let folder = match self.source {
            Source::Npm(lock) => from_lock(name, lock)?,
            Source::Python(requirements) => pypi::programs(name, requirements)?,
            Source::Wheels(requirements) => {
                obtain::folder(name, requirements, |folder| pypi::unpack(folder, requirements))?
            }
            Source::Debian(packages) => Unpacked::obtain(name, packages)?.into_root(),
        };
        let files = self.variables.iter().map(|(variable, file)| {
            let path = folder.join(file);
            ensure!(path.exists(), "the packages contain no {file}");
            Ok((*variable, path))
        });
        files.collect()
    }
}

fn from_lock(name: &str, lock: &str) -> Result<PathBuf> {
    let parsed: Value = serde_json::from_str(lock)?;
    let root = parsed.pointer("/packages/").context("the lock file has no root package")?;
    let folder = obtain::folder(name, lock, |folder| npm::install(folder, root, &parsed))?;
    Ok(folder.join("node_modules"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// npm would install a package without a digest too, and download it from the host of the lock file.
    #[test]
    fn npm_packages_have_digests_and_no_hosts() {
        for Tools { folder, source, .. } in ALL {
            let Source::Npm(lock) = source else { continue };
            let lock: Value = serde_json::from_str(lock).unwrap();
            let packages = lock["packages"].as_object().unwrap().iter().filter(|(name, _)| !name.is_empty());
            for (name, package) in packages {
                let is_pinned = package["integrity"].is_string() && package["resolved"].is_null();
                assert!(is_pinned, "{folder}: {name}");
            }
        }
    }
}

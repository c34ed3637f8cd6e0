//! OpenSSL, with which josekit signs access tokens. Machines without its headers build it from source.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// The packages with the feature that builds OpenSSL from source.
const PACKAGES: [&str; 4] = ["server", "gateway", "oauth", "lab"];

/// The folders in which Homebrew installs OpenSSL. The build script of `openssl-sys` also finds them.
const HOMEBREW: [&str; 2] = ["/opt/homebrew/opt/openssl@3", "/usr/local/opt/openssl@3"];

/// Whether the build script of `openssl-sys` finds the headers.
static HAS_HEADERS: LazyLock<bool> = LazyLock::new(|| {
    let mut pkg_config = Command::new("pkg-config");
    let status = pkg_config.args(["--exists", "openssl"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    std::env::var_os("OPENSSL_DIR").is_some()
        || status.is_ok_and(|status| status.success())
        || HOMEBREW.iter().any(|folder| Path::new(folder).join("include").is_dir())
});

/// Configures a cargo command. `arguments` select its packages.
pub(crate) fn configure<'a>(cargo: &mut Command, arguments: impl IntoIterator<Item = &'a str>) {
    if *HAS_HEADERS {
        // `--all-features` would build OpenSSL although it is installed.
        cargo.env("OPENSSL_NO_VENDOR", "1");
        return;
    }
    for feature in features(arguments) {
        cargo.args(["--features", &feature]);
    }
}

/// The features that build OpenSSL from source, for the selected packages.
fn features<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut features = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let package = match argument {
            "--workspace" => Some("server"),
            "-p" | "--package" => arguments.next(),
            _ => argument.strip_prefix("-p").or_else(|| argument.strip_prefix("--package=")),
        };
        features.extend(
            package.filter(|package| PACKAGES.contains(package)).map(|package| format!("{package}/vendored-openssl")),
        );
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_follow_from_the_selected_packages() {
        for (arguments, expected) in [
            (&["test", "--workspace"][..], &["server/vendored-openssl"][..]),
            (&["build", "-p", "server", "-p", "node", "-p", "cli"], &["server/vendored-openssl"]),
            (&["test", "-p", "oauth", "jwt"], &["oauth/vendored-openssl"]),
            (&["run", "--quiet", "--package", "lab"], &["lab/vendored-openssl"]),
            (&["test", "-p", "dns"], &[]),
            (&["metadata"], &[]),
        ] {
            assert_eq!(features(arguments.iter().copied()), expected, "{arguments:?}");
        }
    }
}

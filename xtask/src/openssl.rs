//! OpenSSL, with which josekit signs access tokens. Machines without its headers build it from source.

use std::ffi::{OsStr, OsString};
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

/// Adds arguments to a cargo command, with the features that the selected packages need on this machine.
pub(crate) fn add_arguments(cargo: &mut Command, arguments: &[impl AsRef<OsStr>]) {
    if *HAS_HEADERS {
        // With `--all-features`, cargo would build OpenSSL although it is installed.
        cargo.env("OPENSSL_NO_VENDOR", "1").args(arguments);
    } else {
        cargo.args(with_features(arguments));
    }
}

/// Inserts the features before the arguments that cargo passes to another program.
fn with_features(arguments: &[impl AsRef<OsStr>]) -> Vec<OsString> {
    let arguments: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
    let own = arguments.iter().position(|argument| *argument == "--").unwrap_or(arguments.len());
    let (own, passed) = arguments.split_at(own);
    let features = features(own.iter().filter_map(|argument| argument.to_str()));
    let features = features.into_iter().flat_map(|feature| ["--features".into(), feature.into()]);
    let owned = |arguments: &[&OsStr]| arguments.iter().map(|argument| OsString::from(*argument)).collect::<Vec<_>>();
    owned(own).into_iter().chain(features).chain(owned(passed)).collect()
}

/// Returns the features that build OpenSSL from source, for the selected packages.
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

    #[test]
    fn features_precede_the_arguments_of_another_program() {
        for (arguments, expected) in [
            (
                "clippy --workspace -- -D warnings",
                "clippy --workspace --features server/vendored-openssl -- -D warnings",
            ),
            ("test -p server races", "test -p server races --features server/vendored-openssl"),
            ("-p server -- -p oauth", "-p server --features server/vendored-openssl -- -p oauth"),
            ("fmt --all --check", "fmt --all --check"),
        ] {
            let arguments: Vec<&str> = arguments.split(' ').collect();
            assert_eq!(with_features(&arguments).join(OsStr::new(" ")), expected);
        }
    }
}

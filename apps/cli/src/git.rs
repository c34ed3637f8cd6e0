//! The git provenance of a folder. It is empty without git or outside a work tree.

use std::path::Path;
use std::process::{Command, Stdio};

use client::types::DeploymentsCreateHeaders;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// The API truncates or drops longer values.
const MAX_MESSAGE_CHARACTERS: usize = 200;
const MAX_BRANCH_BYTES: usize = 255;

/// Returns the provenance of a folder as request headers.
pub fn provenance(folder: &Path) -> DeploymentsCreateHeaders {
    let commit = git(folder, &["rev-parse", "--verify", "--quiet", "HEAD"]);
    if commit.is_none() {
        return DeploymentsCreateHeaders::default();
    }
    let encoded = |text: String| utf8_percent_encode(&text, NON_ALPHANUMERIC).to_string();
    let message = git(folder, &["log", "-1", "--no-show-signature", "--format=%B"]);
    let message =
        message.map(|text| text.lines().next().unwrap_or_default().chars().take(MAX_MESSAGE_CHARACTERS).collect());
    let branch = git(folder, &["symbolic-ref", "--short", "--quiet", "HEAD"]);
    let branch =
        branch.map(|name| name.get(..name.floor_char_boundary(MAX_BRANCH_BYTES)).unwrap_or_default().to_owned());
    let nonempty = |text: Option<String>| text.filter(|text| !text.is_empty()).map(encoded);
    let changes = git(folder, &["status", "--porcelain", "--", "."]);
    DeploymentsCreateHeaders {
        x_svc_git_commit: commit,
        x_svc_git_message: nonempty(message),
        x_svc_git_branch: nonempty(branch),
        x_svc_git_dirty: changes.map(|changes| (!changes.is_empty()).to_string()),
    }
}

/// Runs git and returns its output, or `None` if it fails.
fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    // Do not refresh the index.
    command.env("GIT_OPTIONAL_LOCKS", "0").current_dir(folder).args(arguments);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = output.status.success().then(|| String::from_utf8(output.stdout).ok())??;
    Some(text.trim_end_matches('\n').to_owned())
}

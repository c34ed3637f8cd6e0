//! Where a folder's content comes from, as git knows it. Without git, or outside a work tree, that is not known.

use std::path::Path;
use std::process::{Command, Stdio};

use client::types::DeploymentsCreateHeaders;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// What is longer, the API would cut or leave out.
const MESSAGE_CHARACTERS: usize = 200;
const BRANCH_BYTES: usize = 255;

/// The provenance of a folder, as the API takes it.
pub fn provenance(folder: &Path) -> DeploymentsCreateHeaders {
    let commit = git(folder, &["rev-parse", "--verify", "--quiet", "HEAD"]);
    if commit.is_none() {
        return DeploymentsCreateHeaders::default();
    }
    let encoded = |text: String| utf8_percent_encode(&text, NON_ALPHANUMERIC).to_string();
    let message = git(folder, &["log", "-1", "--no-show-signature", "--format=%B"]);
    let message =
        message.map(|text| text.lines().next().unwrap_or_default().chars().take(MESSAGE_CHARACTERS).collect());
    let branch = git(folder, &["symbolic-ref", "--short", "--quiet", "HEAD"]);
    let branch = branch.map(|name| name.get(..name.floor_char_boundary(BRANCH_BYTES)).unwrap_or_default().to_owned());
    let said = |text: Option<String>| text.filter(|text| !text.is_empty()).map(encoded);
    let changes = git(folder, &["status", "--porcelain", "--", "."]);
    DeploymentsCreateHeaders {
        x_svc_git_commit: commit,
        x_svc_git_message: said(message),
        x_svc_git_branch: said(branch),
        x_svc_git_dirty: changes.map(|changes| (!changes.is_empty()).to_string()),
    }
}

/// What git says; none when it cannot.
fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    // Looking is not to write, not even an index.
    command.env("GIT_OPTIONAL_LOCKS", "0").current_dir(folder).args(arguments);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = output.status.success().then(|| String::from_utf8(output.stdout).ok())??;
    Some(text.trim_end_matches('\n').to_owned())
}

//! The git provenance of a folder. It is empty without git or outside a work tree.
//!
//! The folder is untrusted. The configuration of its repository can name programs that git runs: a file system monitor,
//! filters, the transport of a partial clone, and the same for each submodule. Therefore only commands that run no
//! program read that configuration ([`read_config`]). All others run in an [`IsolatedRepository`].

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use client::types::DeploymentsCreateHeaders;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tempfile::TempDir;

/// The API truncates or drops longer values.
const MAX_MESSAGE_CHARACTERS: usize = 200;
const MAX_BRANCH_BYTES: usize = 255;

/// The length of a SHA-256 object id in hexadecimal.
const SHA256_HEX: usize = 64;

/// The settings that affect whether a file equals the commit. None of them names a program.
const HARMLESS_SETTINGS: &str =
    r"^core\.(filemode|symlinks|ignorecase|precomposeunicode|autocrlf|eol|trustctime|checkstat|excludesfile)$";

/// Prints the work tree, the folder of objects, the index, the folder of attributes and ignored paths, and the commit.
const LOCATE: [&str; 10] = [
    "rev-parse",
    "--path-format=absolute",
    "--show-toplevel",
    "--git-path",
    "objects",
    "--git-path",
    "index",
    "--git-path",
    "info",
    "HEAD",
];

/// The mode of a submodule in the index.
const SUBMODULE_MODE: &[u8] = b"160000 ";

/// Returns the provenance of a folder as request headers.
pub fn provenance(folder: &Path) -> DeploymentsCreateHeaders {
    let Some(repository) = IsolatedRepository::open(folder) else { return DeploymentsCreateHeaders::default() };
    let encoded = |text: String| utf8_percent_encode(&text, NON_ALPHANUMERIC).to_string();
    let message = repository.message();
    let message =
        message.map(|text| text.lines().next().unwrap_or_default().chars().take(MAX_MESSAGE_CHARACTERS).collect());
    let branch = read_config(folder, &["symbolic-ref", "--short", "--quiet", "HEAD"]).and_then(text);
    let branch =
        branch.map(|name| name.get(..name.floor_char_boundary(MAX_BRANCH_BYTES)).unwrap_or_default().to_owned());
    let nonempty = |text: Option<String>| text.filter(|text| !text.is_empty()).map(encoded);
    DeploymentsCreateHeaders {
        x_svc_git_message: nonempty(message),
        x_svc_git_branch: nonempty(branch),
        x_svc_git_dirty: repository.is_dirty().map(|dirty| dirty.to_string()),
        x_svc_git_commit: Some(repository.commit),
    }
}

/// A temporary repository with the commit, the objects, the index and the work tree of the folder's repository. Its
/// configuration consists of [`HARMLESS_SETTINGS`]: no program, no remote, and nothing of the user's configuration.
struct IsolatedRepository<'a> {
    folder: &'a Path,
    commit: String,
    git_dir: TempDir,
    environment: [(&'static str, OsString); 3],
    /// Arguments of git.
    settings: Vec<OsString>,
}

impl<'a> IsolatedRepository<'a> {
    /// Returns `None` if the folder is not in a work tree with a commit, or git fails.
    fn open(folder: &'a Path) -> Option<Self> {
        let found = read_config(folder, &LOCATE)?;
        let lines: Vec<&[u8]> = found.split(|byte| *byte == b'\n').collect();
        // If a path contains a line break, the output has more lines.
        let [work_tree, objects, index, info, commit] = *lines else { return None };
        let commit = text(commit.to_vec())?;
        let path = |bytes| OsStr::from_bytes(bytes).to_owned();
        let git_dir = TempDir::new().ok()?;
        let at = |name: &str| git_dir.path().join(name);
        fs::write(at("HEAD"), &commit).ok()?;
        fs::create_dir(at("refs")).ok()?;
        symlink(OsStr::from_bytes(info), at("info")).ok()?;
        if commit.len() == SHA256_HEX {
            let config = "[core]\nrepositoryFormatVersion = 1\n[extensions]\nobjectFormat = sha256\n";
            fs::write(at("config"), config).ok()?;
        }
        let environment = [
            ("GIT_WORK_TREE", path(work_tree)),
            ("GIT_OBJECT_DIRECTORY", path(objects)),
            ("GIT_INDEX_FILE", path(index)),
        ];
        Some(Self { folder, commit, git_dir, environment, settings: harmless_settings(folder) })
    }

    /// Returns the message of the commit.
    fn message(&self) -> Option<String> {
        // In a shallow clone the parents are missing.
        text(self.git(&["log", "--no-walk", "--format=%B", &self.commit])?)
    }

    /// Returns whether the work tree differs from the commit; `None` if this could only be found out by running a
    /// filter or using a submodule's configuration.
    fn is_dirty(&self) -> Option<bool> {
        if self.has_changes(".")? {
            // A changed file with a filter may still equal the commit after its filter has run. So only changes of
            // other files are decisive.
            return self.has_changes(":(attr:!filter).")?.then_some(true);
        }
        let files = self.git(&["ls-files", "--stage", "--", "."])?;
        let has_submodule = files.split(|byte| *byte == b'\n').any(|file| file.starts_with(SUBMODULE_MODE));
        (!has_submodule).then_some(false)
    }

    /// Returns whether paths in the folder that match `paths` differ from the commit. Ignores submodules, because git
    /// would run itself in them with their own configuration.
    fn has_changes(&self, paths: &str) -> Option<bool> {
        let changes = self.git(&["status", "--porcelain", "--ignore-submodules=all", "--", paths])?;
        Some(!changes.is_empty())
    }

    fn git(&self, arguments: &[&str]) -> Option<Vec<u8>> {
        let mut command = git(self.folder);
        command.env("GIT_DIR", self.git_dir.path()).env_remove("GIT_COMMON_DIR");
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        run(command.args(&self.settings).args(arguments))
    }
}

/// Reads the [`HARMLESS_SETTINGS`] of the folder's repository, as arguments of git.
fn harmless_settings(folder: &Path) -> Vec<OsString> {
    let listed = read_config(folder, &["config", "--null", "--get-regexp", HARMLESS_SETTINGS]).unwrap_or_default();
    let settings = listed.split(|byte| *byte == 0).filter(|setting| !setting.is_empty());
    let arguments = settings.map(|setting| {
        let mut parts = setting.splitn(2, |byte| *byte == b'\n');
        let mut argument = OsStr::from_bytes(parts.next().unwrap_or_default()).to_owned();
        // In the configuration, a key without a value means true. The same is true for an argument without a value.
        if let Some(value) = parts.next() {
            argument.push("=");
            argument.push(OsStr::from_bytes(value));
        }
        [OsString::from("-c"), argument]
    });
    arguments.flatten().collect()
}

/// Runs a git command in the folder's own repository. Must be used only for commands that read neither objects nor the
/// index nor files. Such commands run no program, regardless of the configuration.
fn read_config(folder: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    run(git(folder).args(arguments))
}

/// Returns a git command that does not write the index, fetches nothing and asks nothing.
fn git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder).env("GIT_OPTIONAL_LOCKS", "0").env("GIT_TERMINAL_PROMPT", "0");
    command.env("GIT_NO_LAZY_FETCH", "1").env("GIT_ALLOW_PROTOCOL", "");
    command.args(["--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]);
    command
}

/// Returns the output of a command without the final line breaks, or `None` if it fails.
fn run(command: &mut Command) -> Option<Vec<u8>> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let mut text = output.status.success().then_some(output.stdout)?;
    while text.last() == Some(&b'\n') {
        text.pop();
    }
    Some(text)
}

fn text(bytes: Vec<u8>) -> Option<String> {
    String::from_utf8(bytes).ok()
}

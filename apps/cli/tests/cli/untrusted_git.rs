//! `svc deploy` in a folder whose git configuration names programs. None of them runs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::write_program;

use crate::support::{Machine, Platform};

/// Programs that record their names.
struct Traps {
    folder: PathBuf,
    log: PathBuf,
}

impl Traps {
    fn new(machine: &Machine) -> Self {
        let folder = machine.unlinked();
        let log = folder.join("log");
        Self { folder, log }
    }

    /// Returns the path of the program with this name.
    fn program(&self, name: &str) -> String {
        let program = self.folder.join(name);
        // A filter returns the content.
        let end = if name.starts_with("clean") { "exec cat" } else { "exit 1" };
        write_program(&program, &format!("#!/bin/sh\necho {name} >> {}\n{end}\n", self.log.display()));
        program.display().to_string()
    }

    /// Returns the names of the programs that ran, each with a line break, and clears the record.
    fn sprung(&self) -> String {
        let names = fs::read_to_string(&self.log).unwrap_or_default();
        let _ = fs::remove_file(&self.log);
        names
    }
}

/// Runs git without the settings of a user, and returns its output without the final line break.
fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = command(folder, arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder).args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]).args(arguments);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").stdin(Stdio::null());
    command
}

/// Creates a repository with a commit of its files.
fn repository(folder: &Path) {
    git(folder, &["init", "--quiet", "--initial-branch", "main"]);
    git(folder, &["add", "--all", "."]);
    git(folder, &["commit", "--quiet", "--allow-empty", "-m", "first"]);
}

/// Names traps in every setting with which `git status` or `git log` may run a program, and in some other settings.
fn arm(folder: &Path, traps: &Traps, place: &str) {
    for (setting, name) in [
        ("core.fsmonitor", "fsmonitor"),
        ("core.alternateRefsCommand", "alternates"),
        ("core.pager", "pager"),
        ("core.sshCommand", "ssh"),
        ("core.gitProxy", "proxy"),
        ("core.askPass", "askpass"),
        ("core.editor", "editor"),
        ("pager.log", "pager"),
        ("pager.status", "pager"),
        ("gpg.program", "gpg"),
        ("gpg.openpgp.program", "gpg"),
        ("diff.external", "diff"),
        ("diff.trap.command", "diff"),
        ("diff.trap.textconv", "textconv"),
        ("filter.clean.clean", "clean"),
        ("filter.clean.smudge", "clean"),
        ("filter.process.process", "process"),
        ("remote.origin.uploadpack", "uploadpack"),
    ] {
        git(folder, &["config", setting, &traps.program(&format!("{name}{place}"))]);
    }
    for command in ["rev-parse", "symbolic-ref", "config", "log", "status", "ls-files"] {
        let alias = format!("!{}", traps.program("alias"));
        git(folder, &["config", &format!("alias.{command}"), &alias]);
    }
    let (helper, hooks) = (format!("!{}", traps.program("credential")), folder.join(".git/traps"));
    fs::create_dir(&hooks).unwrap();
    for hook in ["post-index-change", "reference-transaction", "fsmonitor-watchman", "post-checkout"] {
        fs::hard_link(traps.program("hook"), hooks.join(hook)).unwrap();
    }
    for (setting, value) in [
        ("credential.helper", helper.as_str()),
        ("core.hooksPath", &hooks.display().to_string()),
        ("filter.clean.required", "true"),
        ("log.showSignature", "true"),
        ("status.submoduleSummary", "true"),
        ("submodule.recurse", "true"),
    ] {
        git(folder, &["config", setting, value]);
    }
}

/// Makes the repository a partial clone of a remote that is a program, and removes an object.
fn remove_object(folder: &Path, traps: &Traps, object: &str) {
    for (setting, value) in [
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.partialCloneFilter", "tree:0"),
        ("remote.origin.url", &format!("ext::{}", traps.program("remote"))),
        ("protocol.allow", "always"),
        ("protocol.ext.allow", "always"),
    ] {
        git(folder, &["config", setting, value]);
    }
    let (first, rest) = object.split_at(2);
    fs::remove_file(folder.join(".git/objects").join(first).join(rest)).unwrap();
}

/// Creates a commit like the current one, with a signature, and checks it out.
fn sign(folder: &Path) {
    let commit = git(folder, &["cat-file", "commit", "HEAD"]);
    let (head, message) = commit.split_once("\n\n").unwrap();
    let signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n aGVsbG8=\n -----END PGP SIGNATURE-----";
    fs::write(folder.join(".git/signed"), format!("{head}\n{signature}\n\n{message}\n")).unwrap();
    let signed = git(folder, &["hash-object", "-t", "commit", "-w", ".git/signed"]);
    git(folder, &["update-ref", "HEAD", &signed]);
}

/// Writes the same text again, so that git compares the content.
fn rewrite(folder: &Path) {
    for name in ["a.clean", "b.process"] {
        let file = folder.join(name);
        let text = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        fs::write(&file, text).unwrap();
    }
}

/// Creates a folder with a signed commit, filtered files, a submodule and a nested repository, each with traps.
fn hostile_folder(ada: &Machine, traps: &Traps) {
    ada.write(".gitattributes", "*.clean filter=clean diff=trap\n*.process filter=process diff=trap\n");
    ada.write(".gitignore", ".svc\n");
    ada.write("a.clean", "a");
    ada.write("b.process", "b");
    for inner in ["module", "nested"] {
        ada.write(&format!("{inner}/page"), "page");
        repository(&ada.folder.join(inner));
        arm(&ada.folder.join(inner), traps, &format!("-{inner}"));
    }
    ada.write(".gitmodules", "[submodule \"module\"]\npath = module\nurl = ./module\nignore = none\n");
    git(&ada.folder, &["init", "--quiet", "--initial-branch", "main"]);
    let module = git(&ada.folder.join("module"), &["rev-parse", "HEAD"]);
    git(&ada.folder, &["update-index", "--add", "--cacheinfo", &format!("160000,{module},module")]);
    ada.write(".git/info/exclude", "nested\n");
    repository(&ada.folder);
    sign(&ada.folder);
    arm(&ada.folder, traps, "");
    rewrite(&ada.folder);
    // The commands above may have run programs.
    traps.sprung();
}

fn deploy(ada: &Machine) -> Value {
    ada.json(&["deploy", "--no-wait"])["git"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn deploy_runs_no_program_of_the_git_configuration() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    let traps = Traps::new(&ada);
    hostile_folder(&ada, &traps);
    let commit = git(&ada.folder, &["rev-parse", "HEAD"]);

    // The traps work: git itself runs these programs.
    for path in ["a.clean", "b.process", "module"] {
        let _ = command(&ada.folder, &["status", "--", path]).output().unwrap();
    }
    let _ = command(&ada.folder, &["log", "-1"]).output().unwrap();
    let sprung = traps.sprung();
    for name in ["fsmonitor\n", "hook\n", "clean\n", "process\n", "fsmonitor-module\n", "gpg\n"] {
        assert!(sprung.contains(name), "{name:?} is not in {sprung:?}");
    }

    let shown = deploy(&ada);
    assert_eq!(traps.sprung(), "");
    // `dirty` is null, because git would have to run programs to determine whether the submodule changed.
    assert_eq!(shown, json!({ "commit": commit, "message": "first", "branch": "main", "dirty": null }));
    ada.write("a.clean", "changed");
    assert_eq!(deploy(&ada)["dirty"], json!(null));
    ada.write("assets/index.html", "changed");
    assert_eq!(deploy(&ada)["dirty"], json!(true));
    assert_eq!(traps.sprung(), "");

    remove_object(&ada.folder, &traps, &commit);
    let _ = command(&ada.folder, &["log", "-1"]).output().unwrap();
    assert!(traps.sprung().contains("remote\n"), "git did not ask the remote");
    let shown = deploy(&ada);
    assert_eq!((&shown["commit"], &shown["message"]), (&json!(commit), &json!(null)));
    assert_eq!(traps.sprung(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_and_ignored_paths_of_the_repository_apply() {
    let platform = Platform::start().await;
    let ada = platform.ada_with_site();
    repository(&ada.folder);
    let is_dirty = || deploy(&ada)["dirty"].clone();
    assert_eq!(is_dirty(), json!(false));
    // `core.fileMode` decides whether the mode of a file counts.
    let page = ada.folder.join("assets/index.html");
    fs::set_permissions(&page, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(is_dirty(), json!(true));
    git(&ada.folder, &["config", "core.fileMode", "false"]);
    assert_eq!(is_dirty(), json!(false));
    ada.write("notes", "not in the repository");
    assert_eq!(is_dirty(), json!(true));
    ada.write(".git/info/exclude", "notes\n");
    assert_eq!(is_dirty(), json!(false));

    // A linked work tree, and a folder in it.
    let linked = ada.unlinked().join("linked");
    git(&ada.folder, &["worktree", "add", "--quiet", "--detach", &linked.display().to_string()]);
    let folder = linked.join("site");
    fs::create_dir_all(folder.join("assets")).unwrap();
    fs::write(folder.join("svc.json"), "{}").unwrap();
    fs::write(folder.join("assets/index.html"), "page").unwrap();
    git(&linked, &["add", "site"]);
    git(&linked, &["commit", "--quiet", "-m", "second"]);
    let at = folder.display().to_string();
    let shown = || ada.json(&["deploy", &at, "--org", "ada", "--project", "site", "--no-wait"])["git"].clone();
    let clean = shown();
    assert_eq!((&clean["message"], &clean["branch"], &clean["dirty"]), (&json!("second"), &json!(null), &json!(false)));
    // A change outside the folder does not count.
    fs::write(linked.join("assets/index.html"), "changed").unwrap();
    assert_eq!(shown()["dirty"], json!(false));
    fs::write(folder.join("assets/index.html"), "changed").unwrap();
    assert_eq!(shown()["dirty"], json!(true));
}

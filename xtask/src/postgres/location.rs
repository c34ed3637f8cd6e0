//! The folder and the account of a private cluster.
//!
//! Postgres refuses to run as root. If xtask runs as root, it starts Postgres under an unprivileged account. This
//! account must be able to reach the cluster's folder, and it often cannot enter a checkout in a home folder.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::process::geteuid;

use crate::workspace;

/// The unprivileged account that Postgres runs as if xtask runs as root.
#[derive(Clone, Copy)]
pub struct Account {
    uid: u32,
    gid: u32,
}

impl Account {
    /// Finds the account; `None` if Postgres can run as the current user.
    pub fn find() -> Result<Option<Self>> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        // Postgres looks up its user id, so the account needs an entry in /etc/passwd.
        let passwd = fs::read_to_string("/etc/passwd")?;
        let find = |wanted: &str| passwd.lines().find_map(|line| Self::parse(line, wanted));
        let account = find("postgres").or_else(|| find("nobody"));
        Ok(Some(account.context("Postgres cannot run as root, and there is no account `postgres` or `nobody`")?))
    }

    fn parse(line: &str, wanted: &str) -> Option<Self> {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        (name == wanted && uid != 0).then_some(Self { uid, gid })
    }

    fn can_enter(self, folder: &Path) -> bool {
        fs::metadata(folder).is_ok_and(|it| it.mode() & 0o001 != 0 || (it.uid() == self.uid && it.mode() & 0o100 != 0))
    }
}

/// Builds a command that runs a Postgres program as this account.
pub fn command(program: &Path, account: Option<Account>) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/").env("LC_ALL", "C");
    // Variables in the user's profile would redirect the program to another cluster.
    for name in ["PGDATA", "PGPORT", "PGHOST", "PGUSER", "PGDATABASE", "PGOPTIONS"] {
        command.env_remove(name);
    }
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }
    command
}

/// Returns the folder for one kind of cluster of this checkout: in `.svc` if the account can enter it, otherwise in
/// `/var/lib/svc-xtask`.
pub fn state_folder(kind: &str, account: Option<Account>) -> Result<PathBuf> {
    let root = workspace::root()?;
    let checkout_folder = root.join(".svc").join(kind);
    fs::create_dir_all(&checkout_folder)?;
    let Some(account) = account else { return Ok(checkout_folder) };
    if checkout_folder.ancestors().all(|folder| account.can_enter(folder)) {
        return Ok(checkout_folder);
    }
    let mut folder = PathBuf::from("/var/lib/svc-xtask");
    for part in ["", &workspace::fingerprint(&root), kind] {
        folder.push(part);
        fs::create_dir_all(&folder)?;
        // The permissions are set explicitly, so that they do not depend on root's umask.
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
    }
    Ok(folder)
}

/// Creates a folder that only the account (or the current user) can enter. Rejects an existing folder with another
/// owner or wider permissions, because some of the parent folders are writable by all users.
pub fn private_folder(path: &Path, account: Option<Account>) -> Result<()> {
    let owner = account.map_or_else(|| geteuid().as_raw(), |account| account.uid);
    if DirBuilder::new().mode(0o700).create(path).is_ok()
        && let Some(account) = account
    {
        chown(path, Some(account.uid), Some(account.gid))?;
    }
    let found = fs::symlink_metadata(path).with_context(|| format!("{}", path.display()))?;
    let is_private = found.is_dir() && found.uid() == owner && found.mode() & 0o077 == 0;
    ensure!(is_private, "{} exists, but is not a private folder of the account {owner}", path.display());
    Ok(())
}

/// Returns whether this is the metadata of a folder of the current user or of the account.
pub fn is_own_folder(found: &Metadata, account: Option<Account>) -> bool {
    let is_own = found.uid() == geteuid().as_raw() || account.is_some_and(|account| account.uid == found.uid());
    found.is_dir() && is_own
}

/// The port of clusters that listen only on the socket. It is part of the socket's name.
pub const PORT: u16 = 5432;

/// Returns the folder for the socket of a cluster: the cluster's folder, or a shorter one if the socket's path would
/// exceed the limit of 107 bytes.
pub fn socket_folder(home: &Path, account: Option<Account>) -> Result<PathBuf> {
    if socket(home, u16::MAX).as_os_str().len() <= 107 {
        return Ok(home.to_owned());
    }
    let short = std::env::temp_dir().join(format!("svc-{}", workspace::fingerprint(home)));
    private_folder(&short, account)?;
    Ok(short)
}

pub fn socket(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!(".s.PGSQL.{port}"))
}

//! Where a private cluster lives and whom it runs as.
//!
//! Postgres refuses to run as root. Started by root it runs as an unprivileged account, which then must be able to
//! reach the cluster's folder: a checkout under a home folder is out of its reach.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::process::geteuid;

use crate::workspace;

/// An account other than root's, when xtask is root.
#[derive(Clone, Copy)]
pub struct Account {
    uid: u32,
    gid: u32,
}

impl Account {
    /// `None`: Postgres runs as whoever runs xtask.
    pub fn find() -> Result<Option<Self>> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        // Postgres looks its user id up, so a number without an entry would not do.
        let passwd = fs::read_to_string("/etc/passwd")?;
        let find = |wanted: &str| passwd.lines().find_map(|line| Self::parse(line, wanted));
        let account = find("postgres").or_else(|| find("nobody"));
        Ok(Some(account.context("Postgres does not run as root, and there is no account postgres or nobody")?))
    }

    fn parse(line: &str, wanted: &str) -> Option<Self> {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        (name == wanted && uid != 0).then_some(Self { uid, gid })
    }

    fn passes(self, folder: &Path) -> bool {
        fs::metadata(folder).is_ok_and(|it| it.mode() & 0o001 != 0 || (it.uid() == self.uid && it.mode() & 0o100 != 0))
    }
}

/// A program of Postgres, run as the account it may run as.
pub fn command(program: &Path, account: Option<Account>) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/").env("LC_ALL", "C");
    // A socket in another place, another port: what psql users keep in their profile.
    for name in ["PGDATA", "PGPORT", "PGHOST", "PGUSER", "PGDATABASE", "PGOPTIONS"] {
        command.env_remove(name);
    }
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }
    command
}

/// The folder for one kind of cluster of this checkout: in its `.svc`, or else in one that the account can reach.
pub fn state(kind: &str, account: Option<Account>) -> Result<PathBuf> {
    let root = workspace::root()?;
    let own = root.join(".svc").join(kind);
    fs::create_dir_all(&own)?;
    let Some(account) = account else { return Ok(own) };
    if own.ancestors().all(|folder| account.passes(folder)) {
        return Ok(own);
    }
    let mut state = PathBuf::from("/var/lib/svc-xtask");
    for part in ["", &workspace::fingerprint(&root), kind] {
        state.push(part);
        fs::create_dir_all(&state)?;
        // Whatever the mask of root's shell is.
        fs::set_permissions(&state, Permissions::from_mode(0o755))?;
    }
    Ok(state)
}

/// Makes a folder that only the account, or else the caller, may enter; takes one that is there only when it already is
/// that, since some of these lie where anybody may create.
pub fn private_folder(path: &Path, account: Option<Account>) -> Result<()> {
    let owner = account.map_or_else(|| geteuid().as_raw(), |account| account.uid);
    if DirBuilder::new().mode(0o700).create(path).is_ok()
        && let Some(account) = account
    {
        chown(path, Some(account.uid), Some(account.gid))?;
    }
    let found = fs::symlink_metadata(path).with_context(|| format!("{}", path.display()))?;
    let ours = found.is_dir() && found.uid() == owner && found.mode() & 0o077 == 0;
    ensure!(ours, "{} is there, but is not a folder of its own for the account {owner}", path.display());
    Ok(())
}

pub const PORT: &str = "5432";

/// Where the socket of a cluster goes: its own folder, unless the path would be longer than the 107 bytes that an
/// address holds.
pub fn socket_folder(home: &Path, account: Option<Account>) -> Result<PathBuf> {
    if socket(home).as_os_str().len() <= 107 {
        return Ok(home.to_owned());
    }
    let short = std::env::temp_dir().join(format!("svc-{}", workspace::fingerprint(home)));
    private_folder(&short, account)?;
    Ok(short)
}

pub fn socket(folder: &Path) -> PathBuf {
    folder.join(format!(".s.PGSQL.{PORT}"))
}

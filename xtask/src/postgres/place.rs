//! Where a private cluster lives and whom it runs as.
//!
//! Postgres refuses to run as root. Started by root it runs as an unprivileged account, which then must be able to
//! reach the cluster's folder: a checkout under a home folder is out of its reach.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
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
        Ok(Some(account.context(
            "Postgres does not run as root, and there is no account postgres or nobody",
        )?))
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

/// The folder for clusters of this checkout: `.svc` in it, or one that the account can reach.
pub fn state(account: Option<Account>) -> Result<PathBuf> {
    let root = workspace::root()?;
    Ok(match account {
        Some(account) if !root.ancestors().all(|folder| account.passes(folder)) => {
            Path::new("/var/lib/svc-xtask").join(workspace::fingerprint(&root))
        }
        _ => root.join(".svc"),
    })
}

/// Makes a folder that only the account, or else the caller, may enter, and its parents; takes one that is there only
/// when it already is that, since some of these lie in folders where anybody may create.
pub fn private_folder(path: &Path, account: Option<Account>) -> Result<()> {
    let owner = account.map_or_else(|| geteuid().as_raw(), |account| account.uid);
    let parent = path.parent().context("a cluster has no place in the root folder")?;
    fs::create_dir_all(parent).with_context(|| format!("{}", parent.display()))?;
    if DirBuilder::new().mode(0o700).create(path).is_ok()
        && let Some(account) = account
    {
        chown(path, Some(account.uid), Some(account.gid))?;
    }
    let found = fs::symlink_metadata(path).with_context(|| format!("{}", path.display()))?;
    let ours = found.is_dir() && found.uid() == owner && found.mode() & 0o077 == 0;
    ensure!(
        ours,
        "{} is there, but is not a folder of its own for the account {owner}",
        path.display()
    );
    Ok(())
}

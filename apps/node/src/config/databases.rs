//! The Postgres cluster of a node.

use std::env;
use std::path::{Path, PathBuf};

use protocol::{DatabaseServer, SslMode};
use settings::{Error, Interval, Settings};

use super::{BACKUP_INTERVAL, BACKUPS, DATABASE_ADDRESS, DATABASE_SSLMODE, DATABASE_URL, PG_BIN, stores};
use crate::database::Server;
use crate::database::config::{DatabaseConfig, Programs};

/// Parses every setting even without a cluster, so that a malformed value is always reported.
pub(super) fn databases(settings: &Settings) -> Result<Option<DatabaseConfig>, Error> {
    let backups = stores::backups(settings)?;
    let (address, sslmode) = (address(settings)?, sslmode(settings)?);
    let folder = settings.opt(&PG_BIN)?;
    let programs = programs(folder.as_deref());
    if folder.is_some() && programs.is_none() {
        return Err(PG_BIN.malformed("the folder does not contain pg_dump and pg_restore"));
    }
    let Some(url) = settings.opt(&DATABASE_URL)? else {
        return if backups.is_some() { Err(BACKUPS.malformed("it requires SVC_NODE_DATABASE_URL")) } else { Ok(None) };
    };
    let server = Server::parse(url.reveal()).map_err(|error| DATABASE_URL.malformed(format!("{error:#}")))?;
    let required = || DATABASE_ADDRESS.malformed("required if SVC_NODE_DATABASE_URL is set");
    let (host, port) = address.ok_or_else(required)?;
    let Interval(interval) = settings.get(&BACKUP_INTERVAL)?;
    let backup_interval_seconds = u32::try_from(interval.as_secs()).unwrap_or(u32::MAX).max(1);
    let announced = DatabaseServer { host, port, sslmode, backup_interval_seconds };
    let missing =
        || PG_BIN.malformed("pg_dump and pg_restore are not in PATH; set it to the folder that contains them");
    let programs = match programs {
        None if backups.is_some() => return Err(missing()),
        programs => programs.unwrap_or_else(|| Programs::of(Path::new("/usr/bin"))),
    };
    Ok(Some(DatabaseConfig { server, announced, programs, backups }))
}

fn address(settings: &Settings) -> Result<Option<(String, u16)>, Error> {
    let Some(address) = settings.opt(&DATABASE_ADDRESS)? else { return Ok(None) };
    let parsed = address.rsplit_once(':').and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
    let is_host = |host: &str| (1..=253).contains(&host.len()) && !host.contains(['/', '@', ' ']);
    let parsed = parsed.filter(|(host, port): &(String, u16)| is_host(host) && *port > 0);
    parsed.map(Some).ok_or_else(|| DATABASE_ADDRESS.malformed("write it as host:port"))
}

fn sslmode(settings: &Settings) -> Result<SslMode, Error> {
    match settings.get(&DATABASE_SSLMODE)?.as_str() {
        "disable" => Ok(SslMode::Disable),
        "require" => Ok(SslMode::Require),
        "verify-full" => Ok(SslMode::VerifyFull),
        _ => Err(DATABASE_SSLMODE.malformed("it must be disable, require or verify-full")),
    }
}

/// Returns the programs in a folder, or in the first folder of `PATH` that contains them.
fn programs(folder: Option<&Path>) -> Option<Programs> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = folder.map_or_else(|| env::split_paths(&path).collect(), |it| vec![it.to_owned()]);
    let mut programs = folders.iter().map(|folder| Programs::of(folder));
    programs.find(|programs| programs.pg_dump.is_file() && programs.pg_restore.is_file())
}

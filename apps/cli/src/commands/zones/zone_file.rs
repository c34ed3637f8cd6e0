//! `svc zones export` and `svc zones import`: zone files (RFC 1035).

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use client::types::{RRset, ZoneDetail};
use client::{Client, Error, Method, Response, Upload};
use serde::Deserialize;

use super::records::rows;
use crate::commands::DOWNLOAD_TIMEOUT;
use crate::error::CliError;
use crate::output::{Output, table};
use crate::prompt;
use crate::svc::Svc;

#[derive(clap::Args)]
pub struct Import {
    zone: String,
    /// The zone file, or - for stdin
    file: PathBuf,
    /// Show the changes without applying them
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
}

/// The changes that a zone file would make.
#[derive(Deserialize)]
struct Difference {
    added: Vec<RRset>,
    changed: Vec<RRset>,
    removed: Vec<RRset>,
}

impl Difference {
    fn is_empty(&self) -> bool {
        [&self.added, &self.changed, &self.removed].iter().all(|rrsets| rrsets.is_empty())
    }
}

pub async fn export((client, org): (&Client, &str), zone: &str) -> Result<(), CliError> {
    let call = client.call::<()>(Method::GET, &path(org, zone)).timeout(DOWNLOAD_TIMEOUT);
    Output::download(&call.send_raw().await?)
}

impl Import {
    /// Shows the changes, and applies them after a confirmation.
    pub async fn run(self, svc: &Svc<'_>, (client, org): (&Client, &str)) -> Result<(), CliError> {
        let Self { zone, file, dry_run, yes } = self;
        let text = read(&file)?;
        let path = path(org, &zone);
        // The preview and the import fail if the zone changes in the meantime.
        let etag = format!("\"{}\"", client.dns_get(org, &zone).send().await?.serial);
        let preview = compare(client, &path, Some(&etag), &text).await?;
        if dry_run {
            return svc.out.response(&preview, show);
        }
        svc.out.info(show(&preview));
        prompt::require_yes(yes, &format!("Change {zone} like this?"), "changed")?;
        let import = client.call::<ZoneDetail>(Method::PUT, &path).header("If-Match", Some(&etag));
        let imported = match import.upload("text/dns", upload(&text)).send().await {
            // If the response was lost, the client repeated the import, which had already changed the zone.
            Err(error) if error.code() == Some("precondition_failed") => {
                let is_imported =
                    compare(client, &path, None, &text).await.is_ok_and(|difference| difference.is_empty());
                if !is_imported {
                    return Err(error.into());
                }
                client.dns_get(org, &zone).send().await?
            }
            outcome => outcome?,
        };
        svc.out.response(&imported, |_| String::new())?;
        svc.out.success(format!("{zone} has {} rrsets", imported.rrset_count));
        Ok(())
    }
}

/// Compares a zone with a zone file. Fails if the zone does not have the ETag.
async fn compare(
    client: &Client,
    path: &[&str],
    etag: Option<&String>,
    text: &[u8],
) -> Result<Response<Difference>, Error> {
    let call = client.call(Method::PUT, path).query("dryRun", Some(&true)).header("If-Match", etag);
    call.upload("text/dns", upload(text)).send().await
}

fn path<'a>(org: &'a str, zone: &'a str) -> [&'a str; 7] {
    ["v1", "orgs", org, "dns", "zones", zone, "zonefile"]
}

fn read(file: &Path) -> Result<Vec<u8>, CliError> {
    if file.as_os_str() != "-" {
        return fs::read(file).map_err(CliError::file(file));
    }
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text)?;
    Ok(text)
}

fn upload(text: &[u8]) -> Upload {
    let content = text.to_vec();
    Upload::new(content.len() as u64, move || Ok(content.clone().into()))
}

/// Formats the changes, one line for each record.
fn show(difference: &Difference) -> String {
    let Difference { added, changed, removed } = difference;
    let sets = [("added", added), ("changed", changed), ("removed", removed)];
    let lines = sets.into_iter().flat_map(|(change, rrsets)| {
        rrsets
            .iter()
            .flat_map(rows)
            .map(move |[name, kind, ttl, record, _]| [change.to_owned(), name, kind, ttl, record])
    });
    let lines: Vec<_> = lines.collect();
    if lines.is_empty() { "no changes".to_owned() } else { table(["CHANGE", "NAME", "TYPE", "TTL", "RECORD"], lines) }
}

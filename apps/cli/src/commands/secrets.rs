//! `svc secrets`: the secrets of a project. Values come from stdin or a file, never from arguments, which other users
//! can read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use client::Secret;
use client::types::{NewSecretValue, SecretChanges, SecretMeta};

use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::table;
use crate::svc::Svc;
use crate::{dotenv, prompt};

#[derive(clap::Subcommand)]
pub enum Secrets {
    /// List the secrets of a project by name, without their values
    List(PageArgs),
    /// Set the value of a secret, which is read from stdin
    Set {
        /// Name of the secret, which worker code reads as env.NAME
        name: String,
        /// Read the value from this file, including a line break at its end
        #[arg(long, value_name = "FILE")]
        from_file: Option<PathBuf>,
    },
    /// Delete a secret
    Delete { name: String },
    /// Set all secrets of a .env file in one step. Other secrets keep their values
    Import {
        /// A file with lines such as NAME=value, or - for stdin
        file: PathBuf,
    },
}

impl Secrets {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let (org, project) = svc.project()?;
        let client = svc.client()?;
        match self {
            Self::List(page) => {
                let page = client.secrets_list(&org, &project, &page.paging()).send().await?;
                svc.out.page(&page, HEAD, row)
            }
            Self::Set { name, from_file } => {
                let value = match from_file {
                    Some(path) => Secret::new(fs::read_to_string(&path).map_err(CliError::file(&path))?),
                    None => prompt::secret_lines(&format!("value of {name}"))?,
                };
                let secret = client.secrets_set(&org, &project, &name, &NewSecretValue { value }).send().await?;
                svc.out.response(&secret, |secret| table(HEAD, [row(secret)]))?;
                svc.out.success(format!("set {} (version {})", secret.name, secret.version));
                Ok(())
            }
            Self::Delete { name } => {
                let deleted = client.secrets_delete(&org, &project, &name).send().await?;
                svc.out.empty_response(&deleted, format!("deleted {name}"))
            }
            Self::Import { file } => {
                let secrets = read_dotenv(&file)?;
                let list = client.secrets_change(&org, &project, &SecretChanges { secrets: secrets.clone() });
                let list = list.send().await?;
                svc.out.response(&list, |list| {
                    table(HEAD, list.items.iter().filter(|secret| secrets.contains_key(&secret.name)).map(row))
                })?;
                // The first version of a secret is 1, so a secret with this version was added.
                let (added, replaced) =
                    list.items.iter().filter(|it| secrets.contains_key(&it.name)).partition(|it| it.version == 1);
                print_names(svc, "added", added);
                print_names(svc, "replaced", replaced);
                Ok(())
            }
        }
    }
}

const HEAD: [&str; 3] = ["NAME", "VERSION", "UPDATED"];

fn row(secret: &SecretMeta) -> [String; 3] {
    [secret.name.clone(), secret.version.to_string(), secret.updated_at.clone()]
}

fn print_names(svc: &Svc<'_>, change: &str, secrets: Vec<&SecretMeta>) {
    if !secrets.is_empty() {
        let names: Vec<&str> = secrets.iter().map(|secret| secret.name.as_str()).collect();
        svc.out.success(format!("{change} {}", names.join(", ")));
    }
}

/// Reads the changes of an import.
fn read_dotenv(path: &Path) -> Result<BTreeMap<String, Option<Secret>>, CliError> {
    let (path, text) = match path == Path::new("-") {
        true => (Path::new("standard input"), io::read_to_string(io::stdin())),
        false => (path, fs::read_to_string(path)),
    };
    let secrets = dotenv::parse(&text.map_err(CliError::file(path))?);
    let secrets = secrets.map_err(|error| CliError::Other(format!("{}, {error}", path.display())))?;
    if secrets.is_empty() {
        return Err(CliError::Other(format!("{} sets no secrets", path.display())));
    }
    Ok(secrets.into_iter().map(|(name, value)| (name, Some(value))).collect())
}

//! `svc ssh-keys`: the SSH keys with which git reaches the user's repositories.

use std::fs;
use std::path::{Path, PathBuf};

use client::types::{NewSSHKey, SSHKey};

use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::or_dash;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum SshKeys {
    /// List your SSH keys, newest first
    List(PageArgs),
    /// Add a public key
    Add {
        /// The file of the public key, such as ~/.ssh/id_ed25519.pub
        file: PathBuf,
        /// Title of the key (default: the comment in the file)
        #[arg(long)]
        title: Option<String>,
    },
    /// Remove a key
    Remove {
        /// ID of the key
        id: String,
    },
}

impl SshKeys {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let client = svc.client()?;
        match self {
            Self::List(page) => {
                let page = client.credentials_keys(&page.paging()).send().await?;
                svc.out.page(&page, ["ID", "TITLE", "TYPE", "FINGERPRINT", "LAST USED"], row)
            }
            Self::Add { file, title } => {
                let added = client.credentials_key_add(&new_key(&file, title)?).send().await?;
                svc.out.response(&added, |key| key.id.clone())?;
                svc.out.success(format!("added the key {} ({})", added.title, added.fingerprint));
                Ok(())
            }
            Self::Remove { id } => {
                let removed = client.credentials_key_delete(&id).send().await?;
                svc.out.empty_response(&removed, format!("removed {id}"))
            }
        }
    }
}

/// Reads a public key. Rejects a private key, which must not leave the machine.
fn new_key(file: &Path, title: Option<String>) -> Result<NewSSHKey, CliError> {
    let key = fs::read_to_string(file).map_err(CliError::file(file))?.trim().to_owned();
    if key.contains("PRIVATE KEY") {
        let message = format!("{} is a private key: use the file whose name ends with .pub", file.display());
        return Err(CliError::Usage(message));
    }
    // A line consists of the type, the key and a comment.
    let comment = || Some(key.splitn(3, ' ').nth(2)?.trim().to_owned()).filter(|comment| !comment.is_empty());
    let title = title.or_else(comment);
    let title = title.ok_or_else(|| CliError::Usage("the key has no comment: use --title".to_owned()))?;
    Ok(NewSSHKey { key, title })
}

fn row(key: &SSHKey) -> [String; 5] {
    let SSHKey { id, title, r#type, fingerprint, last_used_at, .. } = key;
    [id.clone(), title.clone(), r#type.to_string(), fingerprint.clone(), or_dash(last_used_at.as_deref())]
}

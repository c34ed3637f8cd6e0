//! `svc access`: the access policy of a project.

use client::types::{AccessChange, AccessMode};

use crate::error::CliError;
use crate::output::{fields, yes_or_no};
use crate::prompt;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Access {
    /// Show the access policy
    Show,
    /// Set the access policy
    Set {
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(AccessMode::KNOWN))]
        mode: String,
        /// Keep the current password (only with the mode password)
        #[arg(long)]
        keep_password: bool,
    },
    /// Create a bypass key for the policy, which is shown only once and replaces the existing key
    Bypass {
        /// Revoke the key instead
        #[arg(long)]
        revoke: bool,
        /// Do not ask for confirmation before the existing key is replaced
        #[arg(long, conflicts_with = "revoke")]
        yes: bool,
    },
}

impl Access {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let (org, project) = svc.project()?;
        let client = svc.client()?;
        let policy = match self {
            Self::Show => client.access_get(&org, &project).send().await?,
            Self::Set { mode, keep_password } => {
                let mode = AccessMode::from(mode.as_str());
                if keep_password && mode != AccessMode::Password {
                    return Err(CliError::Usage("--keep-password is only for the mode password".to_owned()));
                }
                let needs_password = mode == AccessMode::Password && !keep_password;
                let password = if needs_password { Some(prompt::secret("password")?) } else { None };
                client.access_set(&org, &project, &AccessChange { mode, password }).send().await?
            }
            Self::Bypass { revoke: true, .. } => {
                let revoked = client.access_bypass_revoke(&org, &project).send().await?;
                return svc.out.empty_response(&revoked, "revoked the bypass key");
            }
            Self::Bypass { revoke: false, yes } => {
                if !yes && client.access_get(&org, &project).send().await?.has_bypass {
                    svc.out.info("The project has a bypass key, which becomes invalid immediately");
                    prompt::require_yes(false, "Replace it by a new one?", "replaced")?;
                }
                let key = client.access_bypass_new(&org, &project).send().await?;
                svc.out.response(&key, |key| key.secret.reveal().to_owned())?;
                svc.out.success("created a bypass key: send it in the Svc-Access-Bypass header; it is not shown again");
                return Ok(());
            }
        };
        svc.out.response(&policy, |policy| {
            let (password, bypass) = (yes_or_no(policy.has_password), yes_or_no(policy.has_bypass));
            fields(&[["mode", policy.mode.as_str()], ["password", password], ["bypass key", bypass]])
        })
    }
}

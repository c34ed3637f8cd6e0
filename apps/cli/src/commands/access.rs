//! Who may see a project's deployments.

use client::types::{AccessChange, AccessMode};

use crate::failure::Failure;
use crate::prompt;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Access {
    /// The policy that holds
    Show,
    /// Set the policy
    Set {
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(AccessMode::KNOWN))]
        mode: String,
        /// With the mode password: leave the password as it is
        #[arg(long)]
        keep_password: bool,
    },
    /// Make a key that passes by the policy; it is shown this once
    Bypass {
        /// Remove the key instead
        #[arg(long)]
        revoke: bool,
    },
}

impl Access {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), Failure> {
        let (org, project) = svc.project()?;
        let client = svc.client()?;
        let policy = match self {
            Self::Show => client.access_get(&org, &project).send().await?,
            Self::Set { mode, keep_password } => {
                let mode = AccessMode::from(mode.as_str());
                let asks = mode == AccessMode::Password && !keep_password;
                let password = if asks { Some(prompt::secret("password")?) } else { None };
                client.access_set(&org, &project, &AccessChange { mode, password }).send().await?
            }
            Self::Bypass { revoke: true } => {
                let revoked = client.access_bypass_revoke(&org, &project).send().await?;
                return svc.out.gone(&revoked, "removed the bypass key");
            }
            Self::Bypass { revoke: false } => {
                let key = client.access_bypass_new(&org, &project).send().await?;
                svc.out.answer(&key, |key| key.secret.reveal().to_owned())?;
                svc.out.done("made a bypass key: send it as the header Svc-Access-Bypass; it is not shown again");
                return Ok(());
            }
        };
        svc.out.answer(&policy, |policy| {
            let is = |there| if there { "yes" } else { "no" };
            let (password, bypass) = (is(policy.has_password), is(policy.has_bypass));
            format!("mode        {}\npassword    {password}\nbypass key  {bypass}", policy.mode)
        })
    }
}

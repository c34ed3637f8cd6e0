//! The commands, one file each.

pub mod access;
pub mod ai;
pub mod apps;
pub mod audit;
pub mod auth;
pub mod billing;
pub mod db;
pub mod deploy;
pub mod deployments;
pub mod device;
pub mod domains;
pub mod email;
pub mod git;
pub mod hostnames;
pub mod init;
pub mod invites;
pub mod login;
pub mod members;
pub mod notifications;
pub mod open;
pub mod orgs;
pub mod projects;
pub mod repos;
pub mod secrets;
pub mod sessions;
pub mod ssh_keys;
pub mod storage;
pub mod tokens;
pub mod zones;

use std::path::PathBuf;
use std::time::Duration;

use clap::CommandFactory as _;

use crate::args::{Args, Command};
use crate::error::CliError;
use crate::link::Link;
use crate::output::Output;
use crate::svc::{GlobalArgs, Svc};

/// The timeout of a download. A mail has at most 25 MiB. A zone file is somewhat larger than its zone, of at most 64 MiB.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(600);

pub async fn run(args: Args, out: &Output) -> Result<(), CliError> {
    let Args { command, api, org, project, .. } = args;
    let global = GlobalArgs { api, org, project };
    if let Command::Completion { shell } = command {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Args::command(), "svc", &mut script);
        return out.data(&String::from_utf8_lossy(&script));
    }
    let folder = match &command {
        Command::Deploy(deploy) => deploy.folder.dir.clone(),
        _ => PathBuf::from("."),
    };
    let link = Link::find(&folder).or_else(|error| match &command {
        // `svc init` replaces a damaged link.
        Command::Init(_) => {
            out.warn(error.to_string());
            Ok(None)
        }
        _ => Err(error),
    })?;
    let svc = &Svc::find(global, link, out)?;
    let needs_no_sign_in = matches!(
        command,
        Command::Login(_) | Command::Logout | Command::Init(_) | Command::Invites(invites::Invites::Show { .. })
    );
    if !needs_no_sign_in {
        device::refresh(svc).await?;
    }
    match command {
        Command::Login(login) => login.run(svc).await,
        Command::Logout => login::logout(svc).await,
        Command::Whoami => login::whoami(svc).await,
        Command::Orgs(orgs) => orgs.run(svc).await,
        Command::Members(members) => members.run(svc).await,
        Command::Invites(invites) => invites.run(svc).await,
        Command::Notifications(page) => notifications::list(svc, &page).await,
        Command::Projects(projects) => projects.run(svc).await,
        Command::Init(init) => init.run(svc).await,
        Command::Deploy(deploy) => deploy.run(svc).await,
        Command::Rollback(rollback) => rollback.run(svc).await,
        Command::Deployments(page) => deployments::list(svc, &page).await,
        Command::Hostnames(hostnames) => hostnames.run(svc).await,
        Command::Domains(domains) => domains.run(svc).await,
        Command::Zones(zones) => zones.run(svc).await,
        Command::Repos(repos) => repos.run(svc).await,
        Command::Git(git) => git.run(svc).await,
        Command::Access(access) => access.run(svc).await,
        Command::Secrets(secrets) => secrets.run(svc).await,
        Command::Storage(storage) => storage.run(svc).await,
        Command::Db(db) => db.run(svc).await,
        Command::Email(email) => email.run(svc).await,
        Command::Auth(auth) => auth.run(svc).await,
        Command::Ai(ai) => ai.run(svc).await,
        Command::Tokens(tokens) => tokens.run(svc).await,
        Command::SshKeys(ssh_keys) => ssh_keys.run(svc).await,
        Command::Sessions(sessions) => sessions.run(svc).await,
        Command::Apps(apps) => apps.run(svc).await,
        Command::Billing(billing) => billing.run(svc).await,
        Command::Audit(audit) => audit.run(svc).await,
        Command::Open { no_browser } => open::run(svc, no_browser).await,
        Command::Completion { .. } => Ok(()),
    }
}

//! The command-line arguments.

use clap::{Parser, Subcommand};

use crate::commands::{
    access, ai, apps, audit, auth, billing, db, deploy, deployments, domains, email, git, hostnames, init, invites,
    login, members, orgs, projects, repos, secrets, sessions, ssh_keys, storage, tokens, zones,
};
use crate::options::PageArgs;

/// Deploy and manage projects on the platform
#[derive(Parser)]
#[command(name = "svc", version, disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
    /// Print the API response as one JSON document
    #[arg(long, global = true)]
    pub json: bool,
    /// Base URL of the API [environment: SVC_CLI_API]
    #[arg(long, global = true, value_name = "URL")]
    pub api: Option<String>,
    /// Slug of the organization
    #[arg(long, global = true, value_name = "SLUG")]
    pub org: Option<String>,
    /// Name of the project
    #[arg(long, global = true, value_name = "NAME")]
    pub project: Option<String>,
}

#[derive(Subcommand)]
pub enum Command {
    /// Sign in, by default at the code host in the browser
    Login(login::Login),
    /// Sign out
    Logout,
    /// Show the signed-in user
    Whoami,
    /// Manage organizations
    #[command(subcommand)]
    Orgs(orgs::Orgs),
    /// Manage the members of an organization
    #[command(subcommand)]
    Members(members::Members),
    /// Manage the open invitations of an organization
    #[command(subcommand)]
    Invites(invites::Invites),
    /// List the notifications of an organization, newest first
    Notifications(PageArgs),
    /// Manage the projects of an organization
    #[command(subcommand)]
    Projects(projects::Projects),
    /// Create svc.json and link the folder to a project
    Init(init::Init),
    /// Deploy a folder
    Deploy(deploy::Deploy),
    /// Make an earlier deployment live
    Rollback(deployments::Rollback),
    /// List the deployments of a project, newest first
    Deployments(PageArgs),
    /// Manage the hostnames of a project
    #[command(subcommand)]
    Hostnames(hostnames::Hostnames),
    /// Buy and manage the domains of an organization
    #[command(subcommand)]
    Domains(domains::Domains),
    /// Manage the DNS zones of an organization
    #[command(subcommand)]
    Zones(zones::Zones),
    /// Manage the git repositories of a project
    #[command(subcommand)]
    Repos(repos::Repos),
    /// Let git use the repositories of a project
    #[command(subcommand)]
    Git(git::Git),
    /// Manage access to the deployments of a project
    #[command(subcommand)]
    Access(access::Access),
    /// Manage the secrets of a project
    #[command(subcommand)]
    Secrets(secrets::Secrets),
    /// Manage the object storage of a project
    #[command(subcommand)]
    Storage(storage::Storage),
    /// Manage the Postgres database of a project
    #[command(subcommand)]
    Db(db::Db),
    /// Manage the mail address of a project, and read its mail log
    #[command(subcommand)]
    Email(email::Email),
    /// Manage the sign-in of the users of a project
    #[command(subcommand)]
    Auth(auth::Auth),
    /// Manage the AI models of a project, and the credit for them
    #[command(subcommand)]
    Ai(ai::Ai),
    /// Manage your personal access tokens
    #[command(subcommand)]
    Tokens(tokens::Tokens),
    /// Manage your SSH keys, with which git reaches repositories
    #[command(subcommand)]
    SshKeys(ssh_keys::SshKeys),
    /// Manage your login sessions
    #[command(subcommand)]
    Sessions(sessions::Sessions),
    /// Manage the apps that have access to your account
    #[command(subcommand)]
    Apps(apps::Apps),
    /// Manage the plan of an organization
    #[command(subcommand)]
    Billing(billing::Billing),
    /// List the audit events of an organization, newest first
    Audit(audit::Audit),
    /// Open a project in the browser
    Open {
        /// Print the URL without opening it
        #[arg(long)]
        no_browser: bool,
    },
    /// Print a completion script for a shell
    Completion { shell: clap_complete::Shell },
}

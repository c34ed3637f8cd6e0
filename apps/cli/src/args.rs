//! The command line.

use clap::{Parser, Subcommand};

use crate::commands::{access, audit, deploy, deployments, hostnames, init, login, orgs, projects, tokens};
use crate::options::Part;

/// Deploy to the platform and look after what is there
#[derive(Parser)]
#[command(name = "svc", version, disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
    /// Print what the API answered, as one JSON document
    #[arg(long, global = true)]
    pub json: bool,
    /// Address of the API [environment: SVC_CLI_API]
    #[arg(long, global = true, value_name = "URL")]
    pub api: Option<String>,
    /// The organization, by its slug
    #[arg(long, global = true, value_name = "SLUG")]
    pub org: Option<String>,
    /// The project, by its name
    #[arg(long, global = true, value_name = "NAME")]
    pub project: Option<String>,
}

#[derive(Subcommand)]
pub enum Command {
    /// Sign in: at the code host in the browser, unless told otherwise
    Login(login::Login),
    /// Sign out
    Logout,
    /// Who is signed in
    Whoami,
    /// Organizations
    #[command(subcommand)]
    Orgs(orgs::Orgs),
    /// Projects of an organization
    #[command(subcommand)]
    Projects(projects::Projects),
    /// Write a first svc.json and link the folder to a project
    Init(init::Init),
    /// Deploy a folder
    Deploy(deploy::Deploy),
    /// Make an older deployment live again
    Rollback(deployments::Rollback),
    /// The deployments of a project, newest first
    Deployments(Part),
    /// Hostnames of a project
    #[command(subcommand)]
    Hostnames(hostnames::Hostnames),
    /// Who may see a project's deployments
    #[command(subcommand)]
    Access(access::Access),
    /// Your personal access tokens
    #[command(subcommand)]
    Tokens(tokens::Tokens),
    /// What happened in an organization, newest first
    Audit(audit::Audit),
    /// Open a project in the browser
    Open {
        /// Print the address only
        #[arg(long)]
        no_browser: bool,
    },
    /// Print a script that completes commands in a shell
    Completion { shell: clap_complete::Shell },
}

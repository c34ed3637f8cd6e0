//! `bench auth`: the sign-in of app users. A server, a node, a Postgres cluster for the databases and the identity
//! providers of the sandbox run on this machine, from release builds.

mod browser;
mod requests;
mod sign_ins;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use reqwest::Method;
use sandbox::{IdentityProvider, IdentityServer};
use serde_json::json;
use xtask::services::Services;
use xtask::workerd;

use super::databases::{Database, ProjectCluster};
use super::machine::with_release_build;
use super::platform::{Platform, Project};
use super::report::{Report, version};
use super::wrk::{Load, Wrk};

const TITLE: &str = "Sign-in of app users";
const ABOUT: &str = "\
Written by `cargo xtask bench auth`. Visitors of a site sign in with an identity provider of the sandbox, and a worker
responds to their requests. The sessions are in the database of the project, in a durable Postgres next to the node.";

/// The project whose users sign in.
const PROJECT: &str = "members";
/// The provider of all sign-ins.
const PROVIDER: IdentityProvider = IdentityProvider::WebAccount;

/// `/current` finds the user of the visitor, all other paths do not.
const WORKER: &[u8] = b"
export default {
  async fetch(request, env) {
    if (!request.url.endsWith('/current')) return new Response('a visitor');
    const user = await env.auth.users.current(request);
    return new Response(user === null ? 'a visitor' : 'a member');
  },
};
";

#[derive(clap::Args, PartialEq)]
pub struct Args {
    /// The duration of each run of wrk; 0 skips this part
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// The number of connections of wrk
    #[arg(long, default_value_t = 4)]
    connections: u32,
    /// The number of sessions that are added; 0 skips this part
    #[arg(long, default_value_t = 1_000_000)]
    sessions: i64,
    /// The number of sign-ins per measurement
    #[arg(long, default_value_t = 200)]
    sign_ins: usize,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let wrk = Wrk::find()?;
    with_release_build(async |services, folder| measure(services, folder, &args, &wrk).await).await
}

async fn measure(services: &mut Services, folder: &Path, args: &Args, wrk: &Wrk) -> Result<()> {
    let workerd = workerd::find().context("this benchmark needs workerd")?;
    let cluster = ProjectCluster::start(services, folder)?;
    let versions = [version(cluster.program("postgres")?, &["--version"])?, version(&workerd, &["--version"])?];
    let identity = IdentityServer::start().await;
    let mut settings = cluster.settings();
    settings.push(("SVC_NODE_WORKERD", workerd.display().to_string()));
    settings.extend(identity.settings());
    // The node limits sign-ins per client address, so each one states another address.
    settings.push(("SVC_EDGE_TRUSTED_PROXIES", "127.0.0.1/32".to_owned()));
    let platform = Platform::start(services, folder, settings).await?;
    let project = services.supervise(enable(&platform, &identity)).await?;
    let mut report = Report::new(TITLE, ABOUT, &versions)?;
    if args.seconds > 0 {
        let load = Load { wrk, seconds: args.seconds, connections: args.connections };
        services.supervise(requests::compare(&mut report, &platform, &project, &load)).await?;
    }
    if args.sessions > 0 {
        let counts = (args.sessions, args.sign_ins);
        services.supervise(sign_ins::measure(&mut report, &platform, &project, &cluster, counts)).await?;
    }
    report.finish(args)
}

/// Creates the project, and enables its sign-in.
async fn enable<'a>(platform: &'a Platform, identity: &IdentityServer) -> Result<Project<'a>> {
    let project = platform.create_project(PROJECT).await?;
    Database::enable(platform, PROJECT).await?.wait_until_usable().await?;
    platform.send(Method::POST, &format!("{PROJECT}/auth"), &json!(null)).await?;
    // The node uses the scheme of the platform's addresses, although the requests are plain http.
    let callback = format!("https://{}/__svc/auth/callback/{}", project.hostname, PROVIDER.as_str());
    let client = identity.register(PROVIDER, &[&callback]);
    let body = json!({ "clientId": client.client_id, "clientSecret": client.client_secret });
    platform.send(Method::PUT, &format!("{PROJECT}/auth/providers/{}", PROVIDER.as_str()), &body).await?;
    project.deploy_with(r#"{ "auth": true, "database": true }"#, &[("worker/index.js", WORKER)]).await?;
    project.wait_until_served("/current").await?;
    // The redirect leads to the page of the provider.
    project.wait_until_served("/__svc/auth/login").await?;
    Ok(project)
}

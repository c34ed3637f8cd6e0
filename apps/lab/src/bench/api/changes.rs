//! A repeatable change: add a hostname to a project, then remove it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use reqwest::Method;
use serde_json::json;

use crate::bench::server::Server;

/// The number of organizations that share the load.
const ORGS: u32 = 16;
const PROJECTS: u32 = 4;

pub struct Changes<'a> {
    server: &'a Server,
    folder: &'a Path,
}

impl<'a> Changes<'a> {
    /// Creates the organizations and their projects.
    pub async fn prepare(server: &'a Server, folder: &'a Path) -> Result<Self> {
        for org in 0..ORGS {
            let new = json!({ "slug": format!("bench{org}"), "name": "Bench" });
            server.expect_success(server.request(Method::POST, "/v1/orgs").json(&new)).await?;
            for project in 0..PROJECTS {
                let new = json!({ "name": format!("p{project}") });
                let path = format!("/v1/orgs/bench{org}/projects");
                server.expect_success(server.request(Method::POST, &path).json(&new)).await?;
            }
        }
        Ok(Self { server, folder })
    }

    /// Adds and removes a hostname in a project that only this client uses.
    pub async fn add_and_remove(&self, client: u32) -> Result<()> {
        let (hostnames, name) = (hostnames(client), format!("c{client}.bench.example"));
        let add = self.server.request(Method::POST, &hostnames).json(&json!({ "name": name }));
        self.server.expect_success(add).await?;
        self.server.expect_success(self.server.request(Method::DELETE, &format!("{hostnames}/{name}"))).await
    }

    /// Writes a wrk script that alternately adds and removes hostnames. wrk does not define which connection sends
    /// next, so a name is removed only many requests after it was added. `round` makes the names of each run unique.
    pub fn script(&self, round: usize) -> Result<PathBuf> {
        let path = self.folder.join("changes.lua");
        let authorization = self.server.authorization();
        fs::write(
            &path,
            format!(
                r#"
local threads = 0
function setup(thread)
    thread:set("id", threads)
    threads = threads + 1
end

local headers = {{ ["Authorization"] = "{authorization}", ["Content-Type"] = "application/json" }}
-- wrk builds one request before it starts and does not send it: the first name is never removed.
-- A change locks its project, and so many additions later, the removals are in other organizations than the additions.
local behind, added, removed, adds = 260, 0, 1, true

local function hostnames(number)
    local org = (number * 2 + id) % {ORGS}
    local project = math.floor(number / {ORGS}) % {PROJECTS}
    return "/v1/orgs/bench" .. org .. "/projects/p" .. project .. "/hostnames"
end

local function name(number)
    return "r{round}-t" .. id .. "-n" .. number .. ".bench.example"
end

function request()
    adds = not adds or added - removed < behind
    if adds then
        added = added + 1
        return wrk.format("POST", hostnames(added), headers, '{{"name":"' .. name(added) .. '"}}')
    end
    removed = removed + 1
    return wrk.format("DELETE", hostnames(removed) .. "/" .. name(removed), headers)
end
"#
            ),
        )?;
        Ok(path)
    }
}

fn hostnames(client: u32) -> String {
    format!("/v1/orgs/bench{}/projects/p0/hostnames", client % ORGS)
}

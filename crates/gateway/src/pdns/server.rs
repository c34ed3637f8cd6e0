//! What the server says of itself: tools look here for the version of the API and of PowerDNS.

use serde::Serialize;
use serde_json::{Value, json};

use super::answer::Answer;
use super::policy::Keyed;
use crate::authority::scope::DnsRead;
use crate::http::Routes;
use crate::problem::Problem;

/// The release whose behaviour this is. Tools choose what they send by it, and read it as numbers.
const VERSION: &str = "4.7.0";

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("server", "The PowerDNS-compatible server.");
    area.get("api", "/api", api);
    area.get("v1", "/api/v1", v1);
    area.get("list", "/api/v1/servers", list);
    area.get("get", "/api/v1/servers/localhost", get);
    area.get("config", "/api/v1/servers/localhost/config", config);
}

#[derive(Debug, Serialize)]
struct Server {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'static str,
    daemon_type: &'static str,
    version: &'static str,
    url: &'static str,
    config_url: &'static str,
    zones_url: &'static str,
}

const SERVER: Server = Server {
    kind: "Server",
    id: "localhost",
    daemon_type: "authoritative",
    version: VERSION,
    url: "/api/v1/servers/localhost",
    config_url: "/api/v1/servers/localhost/config{/config_setting}",
    zones_url: "/api/v1/servers/localhost/zones{/zone}",
};

async fn api(_: Keyed<DnsRead>) -> Result<Answer<Value>, Problem> {
    Ok(Answer(json!([{ "url": "/api/v1", "version": 1 }])))
}

async fn v1(_: Keyed<DnsRead>) -> Result<Answer<Value>, Problem> {
    Ok(Answer(json!([{ "server_url": "/api/v1/servers{/server}", "api_features": [] }])))
}

async fn list(_: Keyed<DnsRead>) -> Result<Answer<[Server; 1]>, Problem> {
    Ok(Answer([SERVER]))
}

async fn get(_: Keyed<DnsRead>) -> Result<Answer<Server>, Problem> {
    Ok(Answer(SERVER))
}

/// None of PowerDNS's settings: what tools look for here are features of its own, such as LUA records.
async fn config(_: Keyed<DnsRead>) -> Result<Answer<[Value; 0]>, Problem> {
    Ok(Answer([]))
}

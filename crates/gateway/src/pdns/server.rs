//! The server object. Clients read the versions of the API and of PowerDNS in it.

use serde::Serialize;
use serde_json::{Value, json};

use super::policy::ApiKeyCaller;
use super::response::PdnsResponse;
use crate::authority::scope::DnsRead;
use crate::http::Routes;
use crate::problem::Problem;

/// The emulated PowerDNS release. Clients parse it as numbers, and choose their requests depending on it.
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

async fn api(_: ApiKeyCaller<DnsRead>) -> Result<PdnsResponse<Value>, Problem> {
    Ok(PdnsResponse(json!([{ "url": "/api/v1", "version": 1 }])))
}

async fn v1(_: ApiKeyCaller<DnsRead>) -> Result<PdnsResponse<Value>, Problem> {
    Ok(PdnsResponse(json!([{ "server_url": "/api/v1/servers{/server}", "api_features": [] }])))
}

async fn list(_: ApiKeyCaller<DnsRead>) -> Result<PdnsResponse<[Server; 1]>, Problem> {
    Ok(PdnsResponse([SERVER]))
}

async fn get(_: ApiKeyCaller<DnsRead>) -> Result<PdnsResponse<Server>, Problem> {
    Ok(PdnsResponse(SERVER))
}

/// Returns an empty list of settings, in which clients look for PowerDNS features such as LUA records.
async fn config(_: ApiKeyCaller<DnsRead>) -> Result<PdnsResponse<[Value; 0]>, Problem> {
    Ok(PdnsResponse([]))
}

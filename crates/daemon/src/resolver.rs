//! The DNS client.

use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::system_conf::read_system_conf;

/// The timeout of a query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);
/// The number of retries of a query.
const RETRIES: usize = 1;

/// Creates a resolver that uses the name server at this address, or the name servers of the system. Clones share the
/// cache of responses. The resolver ignores the hosts file, and looks up both IPv4 and IPv6 addresses of a host.
///
/// If the system has no name server, logs an error and returns a resolver whose lookups fail: the program can still do
/// its other work.
///
/// # Errors
/// Returns an error if the resolver cannot be set up.
pub fn resolver(server: Option<SocketAddr>) -> anyhow::Result<TokioResolver> {
    let servers = match server {
        Some(server) => vec![name_server(server)],
        None => read_system_conf().map(|(config, _)| config.into_parts().2).unwrap_or_else(|error| {
            tracing::error!(%error, "the system has no name server: DNS lookups fail");
            Vec::new()
        }),
    };
    let config = ResolverConfig::from_name_servers(servers);
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    let options = builder.options_mut();
    options.timeout = QUERY_TIMEOUT;
    options.attempts = RETRIES;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.use_hosts_file = ResolveHosts::Never;
    Ok(builder.build()?)
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

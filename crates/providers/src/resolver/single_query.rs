//! Connections that send each UDP query once.
//!
//! By default, hickory repeats an unanswered query every third of a second, each time on another socket, up to three
//! times.

use std::net::{IpAddr, SocketAddr};

use hickory_resolver::config::{ConnectionConfig, ProtocolConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::udp::UdpClientStream;
use hickory_resolver::{ConnectionProvider, PoolContext};

/// A provider that changes only the UDP connections of hickory.
#[derive(Clone, Default)]
pub(super) struct SingleQueryProvider(TokioRuntimeProvider);

impl ConnectionProvider for SingleQueryProvider {
    type Conn = <TokioRuntimeProvider as ConnectionProvider>::Conn;
    type FutureConn = <TokioRuntimeProvider as ConnectionProvider>::FutureConn;
    type RuntimeProvider = TokioRuntimeProvider;

    fn new_connection(
        &self,
        ip: IpAddr,
        config: &ConnectionConfig,
        context: &PoolContext,
    ) -> Result<Self::FutureConn, NetError> {
        if config.protocol != ProtocolConfig::Udp {
            return self.0.new_connection(ip, config, context);
        }
        let connection = UdpClientStream::builder(SocketAddr::new(ip, config.port), self.0.clone())
            .with_timeout(Some(context.options.timeout))
            .with_max_retries(1);
        Ok(Box::pin(async { Ok(connection.exchange()) }))
    }

    fn runtime_provider(&self) -> &TokioRuntimeProvider {
        &self.0
    }
}

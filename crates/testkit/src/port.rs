//! Ports for servers that tests start as processes.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Mutex;

use kernel::ClockRng;
use tokio::net::TcpSocket;

/// The sockets that keep the reserved ports.
static RESERVED: Mutex<Vec<TcpSocket>> = Mutex::new(Vec::new());

/// Reserves a TCP address of the loopback interface. The kernel does not give this address to another process until
/// this process ends, even while no server listens there. A server that sets `SO_REUSEADDR` can listen on it, again
/// after each restart. While no server listens, connections are refused.
///
/// # Panics
/// Panics if no port is free.
pub fn reserved_address() -> SocketAddr {
    reserve(0)
}

/// Reserves an address for a DNS server, which listens on UDP, too. The kernel gives this UDP port to no client, because
/// the ports of clients begin at 32768.
///
/// # Panics
/// Panics if no socket can be opened.
pub fn reserved_dns_address() -> SocketAddr {
    loop {
        let port = 20_000 + u16::from_be_bytes(ClockRng::system().bytes()) % 12_000;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // Without `SO_REUSEADDR`, this fails for a port that any process has reserved.
        let is_free = TcpSocket::new_v4().unwrap().bind(address).is_ok();
        if is_free && UdpSocket::bind(address).is_ok() {
            return reserve(port);
        }
    }
}

/// Reserves a TCP port of the loopback interface, or any free one for 0.
fn reserve(port: u16) -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    // If both sockets set this option, Linux lets one of them listen on an address that the other one has bound. The
    // kernel never selects such a port for a bind to port 0 or for an outgoing connection.
    socket.set_reuseaddr(true).unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, port).into()).unwrap();
    let address = socket.local_addr().unwrap();
    RESERVED.lock().unwrap().push(socket);
    address
}

/// Returns the port of a [`reserved_address`].
///
/// # Panics
/// Panics if no port is free.
pub fn reserved_port() -> u16 {
    reserved_address().port()
}

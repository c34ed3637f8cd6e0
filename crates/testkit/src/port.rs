//! Ports for servers that tests start as processes.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;

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
    let socket = TcpSocket::new_v4().unwrap();
    // If both sockets set this option, Linux lets one of them listen on an address that the other one has bound. The
    // kernel never selects such a port for a bind to port 0 or for an outgoing connection.
    socket.set_reuseaddr(true).unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
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

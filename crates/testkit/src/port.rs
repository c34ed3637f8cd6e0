//! Ports for servers that tests start as processes.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;

use tokio::net::TcpSocket;

/// The sockets that keep the reserved ports.
static RESERVED: Mutex<Vec<TcpSocket>> = Mutex::new(Vec::new());

/// A TCP address of the loopback interface that the kernel gives to nobody else until the end of this process, also
/// while no server listens there. A server that sets `SO_REUSEADDR` can listen on it, again after each restart;
/// until then connections are refused.
///
/// # Panics
/// When no port is free.
pub fn reserved_address() -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    // Linux lets a socket listen on a bound address if both set this option and only one of them listens, but it
    // never selects such a port for a bind to port 0 or for an outgoing connection.
    socket.set_reuseaddr(true).unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    RESERVED.lock().unwrap().push(socket);
    address
}

/// The port of a [`reserved_address`].
///
/// # Panics
/// When no port is free.
pub fn reserved_port() -> u16 {
    reserved_address().port()
}

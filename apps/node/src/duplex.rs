//! Byte streams in both directions.

use tokio::io::{AsyncRead, AsyncWrite};

/// A bidirectional byte stream, such as a socket with or without TLS.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

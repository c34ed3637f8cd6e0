//! A server that is measured: the node or nginx.

use std::net::SocketAddr;

use anyhow::Result;

use crate::usage;

pub struct Target {
    pub name: &'static str,
    /// The address of the TLS listener.
    pub address: SocketAddr,
    /// The process, whose children are workers.
    pub process: u32,
}

impl Target {
    /// Returns the memory of all processes in MB.
    pub fn memory(&self) -> Result<f64> {
        self.processes()?.into_iter().map(usage::proportional_memory).sum()
    }

    /// Returns the CPU time that all processes have used, in seconds.
    pub fn cpu_time(&self) -> Result<f64> {
        self.processes()?.into_iter().map(usage::cpu_time).sum()
    }

    fn processes(&self) -> Result<Vec<u32>> {
        let mut processes = usage::children(self.process)?;
        processes.push(self.process);
        Ok(processes)
    }
}

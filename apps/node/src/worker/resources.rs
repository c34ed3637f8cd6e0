//! The resources of a worker process.

use anyhow::{Context as _, bail};
use tokio::process::Command;

use super::bindings::Registration;
use super::capnp::Message;
use super::cgroup::Cgroup;
use super::definition::Definition;
use super::egress::EgressGuard;
use super::folder::{Folder, FolderHandle};
use super::launch::Launch;
use super::uids::Uid;
use super::workers::Workers;
use crate::cache::Blob;
use crate::environment::Environment;
use crate::index::Index;

/// The resources of a process. They are released in the order of the fields, and only after the process has exited. The
/// release blocks.
pub struct Resources {
    _egress: EgressGuard,
    folder: Folder,
    /// The user id. Its release kills the processes that the worker left in the control group.
    uid: Option<Uid>,
    cgroup: Option<Cgroup>,
    _registration: Registration,
}

impl Resources {
    /// Prepares a process, and its configuration. Blocks. Must be called within a tokio runtime.
    pub fn prepare(
        workers: &Workers,
        index: &Index,
        environment: &Environment,
        registration: Registration,
    ) -> anyhow::Result<(Self, Message)> {
        let code = index.code.as_ref().context("no code")?;
        let (bindings, memory) = (&workers.bindings, workers.config.memory);
        let definition = Definition { code, environment, bindings, memory, key: registration.key() };
        for (content, size) in definition.modules() {
            let stored = workers.cache.size(Blob::from(content))?;
            if stored != Some(size) {
                // If the channel is full, the next start reports it again.
                let _ = workers.damaged.try_send(content);
                bail!("the stored module {content} has {stored:?} bytes instead of {size}");
            }
        }
        let message = definition.message()?;
        let uid = workers.uids.allocate()?;
        let folder = workers.run.create_folder(uid.as_ref().map(|uid| uid.number))?;
        let egress = workers.egress.serve(folder.listen()?)?;
        let cgroups = workers.available.cgroups.as_ref();
        let cgroup = cgroups.map(|cgroups| cgroups.create(folder.name()?)).transpose();
        let cgroup = cgroup.context("failed to create the control group")?;
        Ok((Self { _egress: egress, folder, uid, cgroup, _registration: registration }, message))
    }

    /// Returns the command that starts the process.
    pub fn command(&self, workers: &Workers) -> Command {
        let (folder, uid, cgroup) = (self.folder.path(), self.uid_number(), self.cgroup.as_ref());
        Launch { config: &workers.config, folder, uid, protections: &workers.available.of_kernel, cgroup }.command()
    }

    /// Returns a handle to find the sockets of the process.
    pub fn folder_handle(&self) -> std::io::Result<FolderHandle> {
        self.folder.handle(self.uid_number())
    }

    /// Returns whether the kernel killed the process because of the memory limit of its control group. Blocks.
    pub fn exceeded_memory(&self) -> bool {
        self.cgroup.as_ref().is_some_and(Cgroup::exceeded_memory)
    }

    fn uid_number(&self) -> Option<u32> {
        self.uid.as_ref().map(|uid| uid.number)
    }
}

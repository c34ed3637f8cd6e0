//! The resources of a worker process.

use anyhow::Context as _;
use tokio::process::Command;

use super::assets::Registration;
use super::cgroup::Cgroup;
use super::definition::Definition;
use super::egress::EgressGuard;
use super::folder::{Folder, FolderHandle};
use super::launch::Launch;
use super::uids::Uid;
use super::workers::Workers;
use crate::index::Index;

/// The resources of a process, released in this order, and only after it has exited; that blocks.
pub struct Resources {
    _egress: EgressGuard,
    folder: Folder,
    /// Its release kills the processes that the worker left behind, which are in the control group.
    uid: Option<Uid>,
    cgroup: Option<Cgroup>,
    _assets: Registration,
}

impl Resources {
    /// Prepares a process. Blocks. Must be called within a tokio runtime.
    pub fn prepare(workers: &Workers, index: &Index, assets: Registration) -> anyhow::Result<Self> {
        let code = index.code.as_ref().context("no code")?;
        let definition = Definition::new(code, assets.key());
        let uid = workers.uids.allocate()?;
        let folder = workers.run.create_folder(&workers.cache, &definition, uid.as_ref().map(|uid| uid.number))?;
        let egress = workers.egress.serve(folder.listen()?)?;
        let cgroups = workers.available.cgroups.as_ref();
        let cgroup = cgroups.map(|cgroups| cgroups.create(folder.name()?)).transpose();
        let cgroup = cgroup.context("failed to create the control group")?;
        Ok(Self { _egress: egress, folder, uid, cgroup, _assets: assets })
    }

    /// The command that starts the process.
    pub fn command(&self, workers: &Workers) -> Command {
        let (folder, uid, cgroup) = (self.folder.path(), self.uid_number(), self.cgroup.as_ref());
        Launch { config: &workers.config, folder, uid, protections: &workers.available.of_kernel, cgroup }.command()
    }

    /// A handle to find the sockets of the process.
    pub fn folder_handle(&self) -> std::io::Result<FolderHandle> {
        self.folder.handle(self.uid_number())
    }

    /// Whether the kernel killed the process because of the memory limit of its control group. Blocks.
    pub fn exceeded_memory(&self) -> bool {
        self.cgroup.as_ref().is_some_and(Cgroup::exceeded_memory)
    }

    fn uid_number(&self) -> Option<u32> {
        self.uid.as_ref().map(|uid| uid.number)
    }
}

//! The protections of worker processes that a machine may lack.

/// A protection of worker processes. Its name is a label of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// A user id that no other process has.
    UserId,
    /// A network namespace without any interface. The process can reach the network only through the socket of the
    /// egress proxy.
    NetworkNamespace,
    /// A root directory that contains only the program, its libraries and the folder of the process.
    MountNamespace,
    /// A control group that limits memory, threads and CPU time.
    Cgroup,
    /// Landlock rules that restrict files, TCP, abstract sockets and signals.
    Landlock,
    /// A seccomp filter that permits only the system calls that `workerd` needs.
    Seccomp,
}

impl Protection {
    /// All protections.
    pub const ALL: [Self; 6] =
        [Self::UserId, Self::NetworkNamespace, Self::MountNamespace, Self::Cgroup, Self::Landlock, Self::Seccomp];

    /// The protections that need a feature of the kernel, and that the launcher applies to itself.
    pub const OF_KERNEL: [Self; 4] = [Self::NetworkNamespace, Self::MountNamespace, Self::Landlock, Self::Seccomp];

    /// Returns the name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UserId => "user_id",
            Self::NetworkNamespace => "network_namespace",
            Self::MountNamespace => "mount_namespace",
            Self::Cgroup => "cgroup",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
        }
    }

    /// Returns the protection with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protection| protection.name() == name)
    }
}

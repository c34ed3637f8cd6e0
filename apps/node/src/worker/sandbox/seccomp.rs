//! A seccomp filter: the system calls that `workerd`, its allocator and the C library use.
//!
//! Other system calls fail with `ENOSYS`, as on an older kernel, so that the C library uses an older call if there is
//! one. The calls that fail include those that create processes, namespaces, keys, BPF programs and `io_uring` queues,
//! which would bypass this filter.

use anyhow::Context as _;
use libc::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

/// Memory.
const MEMORY: [c_long; 16] = [
    SYS_brk,
    SYS_madvise,
    SYS_membarrier,
    SYS_memfd_create,
    SYS_mincore,
    SYS_mlock,
    SYS_mlock2,
    SYS_mmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_msync,
    SYS_munlock,
    SYS_munmap,
    SYS_pkey_alloc,
    SYS_pkey_free,
    SYS_pkey_mprotect,
];

/// Files and directories.
const FILES: [c_long; 50] = [
    SYS_chdir,
    SYS_close,
    SYS_close_range,
    SYS_copy_file_range,
    SYS_dup,
    SYS_dup3,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_fallocate,
    SYS_fchdir,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fcntl,
    SYS_fdatasync,
    SYS_flock,
    SYS_fstat,
    SYS_fstatfs,
    SYS_fsync,
    SYS_ftruncate,
    SYS_getcwd,
    SYS_getdents64,
    SYS_ioctl,
    SYS_lseek,
    SYS_mkdirat,
    SYS_newfstatat,
    SYS_openat,
    SYS_openat2,
    SYS_pipe2,
    SYS_pread64,
    SYS_preadv,
    SYS_preadv2,
    SYS_pwrite64,
    SYS_pwritev,
    SYS_pwritev2,
    SYS_read,
    SYS_readahead,
    SYS_readlinkat,
    SYS_readv,
    SYS_renameat2,
    SYS_sendfile,
    SYS_splice,
    SYS_statfs,
    SYS_statx,
    SYS_tee,
    SYS_truncate,
    SYS_umask,
    SYS_unlinkat,
    SYS_utimensat,
    SYS_write,
    SYS_writev,
];

/// Sockets. [`socket`](SYS_socket) and [`socketpair`](SYS_socketpair) have a condition.
const SOCKETS: [c_long; 16] = [
    SYS_accept,
    SYS_accept4,
    SYS_bind,
    SYS_connect,
    SYS_getpeername,
    SYS_getsockname,
    SYS_getsockopt,
    SYS_listen,
    SYS_recvfrom,
    SYS_recvmmsg,
    SYS_recvmsg,
    SYS_sendmmsg,
    SYS_sendmsg,
    SYS_sendto,
    SYS_setsockopt,
    SYS_shutdown,
];

/// Events.
const EVENTS: [c_long; 11] = [
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_eventfd2,
    SYS_ppoll,
    SYS_pselect6,
    SYS_signalfd4,
    SYS_timerfd_create,
    SYS_timerfd_gettime,
    SYS_timerfd_settime,
];

/// Threads, signals and the process itself. [`clone`](SYS_clone) has a condition.
const PROCESS: [c_long; 59] = [
    SYS_capget,
    SYS_execve,
    SYS_exit,
    SYS_exit_group,
    SYS_futex,
    SYS_futex_waitv,
    SYS_get_robust_list,
    SYS_getcpu,
    SYS_getegid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getgroups,
    SYS_getpgid,
    SYS_getpid,
    SYS_getppid,
    SYS_getpriority,
    SYS_getresgid,
    SYS_getresuid,
    SYS_getrlimit,
    SYS_getrusage,
    SYS_getsid,
    SYS_gettid,
    SYS_getuid,
    SYS_kill,
    SYS_prctl,
    SYS_prlimit64,
    SYS_restart_syscall,
    SYS_rseq,
    SYS_rt_sigaction,
    SYS_rt_sigpending,
    SYS_rt_sigprocmask,
    SYS_rt_sigqueueinfo,
    SYS_rt_sigreturn,
    SYS_rt_sigsuspend,
    SYS_rt_sigtimedwait,
    SYS_rt_tgsigqueueinfo,
    SYS_sched_get_priority_max,
    SYS_sched_get_priority_min,
    SYS_sched_getaffinity,
    SYS_sched_getattr,
    SYS_sched_getparam,
    SYS_sched_getscheduler,
    SYS_sched_setaffinity,
    SYS_sched_setattr,
    SYS_sched_setparam,
    SYS_sched_setscheduler,
    SYS_sched_yield,
    SYS_set_robust_list,
    SYS_set_tid_address,
    SYS_setpriority,
    SYS_setrlimit,
    SYS_sigaltstack,
    SYS_sysinfo,
    SYS_tgkill,
    SYS_times,
    SYS_tkill,
    SYS_uname,
    SYS_wait4,
    SYS_waitid,
];

/// Time and randomness.
const TIME: [c_long; 13] = [
    SYS_clock_getres,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_getitimer,
    SYS_getrandom,
    SYS_gettimeofday,
    SYS_nanosleep,
    SYS_setitimer,
    SYS_timer_create,
    SYS_timer_delete,
    SYS_timer_getoverrun,
    SYS_timer_gettime,
    SYS_timer_settime,
];

/// Calls that only older architectures have.
#[cfg(target_arch = "x86_64")]
const LEGACY: [c_long; 26] = [
    SYS_access,
    SYS_alarm,
    SYS_arch_prctl,
    SYS_chmod,
    SYS_creat,
    SYS_dup2,
    SYS_epoll_create,
    SYS_epoll_wait,
    SYS_eventfd,
    SYS_getdents,
    SYS_getpgrp,
    SYS_lstat,
    SYS_mkdir,
    SYS_open,
    SYS_pause,
    SYS_pipe,
    SYS_poll,
    SYS_readlink,
    SYS_rename,
    SYS_renameat,
    SYS_rmdir,
    SYS_select,
    SYS_signalfd,
    SYS_stat,
    SYS_time,
    SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY: [c_long; 0] = [];

/// Restricts this process. Also sets `no_new_privs`.
pub fn restrict() -> anyhow::Result<()> {
    let allowed = [&MEMORY[..], &FILES, &SOCKETS, &EVENTS, &PROCESS, &TIME, &LEGACY].concat();
    let mut rules: Vec<_> = allowed.into_iter().map(|call| (call, Vec::new())).collect();
    for call in [SYS_socket, SYS_socketpair] {
        rules.push((call, vec![argument(0, SeccompCmpOp::Eq, AF_UNIX)?]));
    }
    // `clone` may create threads, but no processes.
    rules.push((SYS_clone, vec![argument(0, SeccompCmpOp::MaskedEq(u64::try_from(CLONE_THREAD)?), CLONE_THREAD)?]));
    let (otherwise, matching) = (SeccompAction::Errno(u32::try_from(ENOSYS)?), SeccompAction::Allow);
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules.into_iter().collect(), otherwise, matching, architecture)?;
    let program: BpfProgram = filter.try_into()?;
    apply_filter(&program).context("the kernel rejected the filter")
}

fn argument(number: u8, comparison: SeccompCmpOp, value: c_int) -> anyhow::Result<SeccompRule> {
    let condition = SeccompCondition::new(number, SeccompCmpArgLen::Dword, comparison, u64::try_from(value)?)?;
    Ok(SeccompRule::new(vec![condition])?)
}

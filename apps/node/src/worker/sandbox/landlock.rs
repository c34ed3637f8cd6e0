//! Landlock rules: the files that the process may open, no TCP, no abstract sockets of other processes, and no signals
//! to them.

use anyhow::ensure;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetStatus, Scope, make_bitflags,
};

use super::Paths;
use super::mounts::{LIBRARIES, RANDOM};

/// The newest version of Landlock whose access rights this code knows. An older kernel enforces those rights that it
/// supports.
const VERSION: ABI = ABI::V6;

/// Restricts this process. It must have `no_new_privs`.
pub fn restrict(paths: &Paths) -> anyhow::Result<()> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(AccessNet::from_all(VERSION))?
        .scope(Scope::from_all(VERSION))?
        .create()?;
    let library = make_bitflags!(AccessFs::{Execute | ReadFile | ReadDir});
    let folder = make_bitflags!(AccessFs::{ReadFile | ReadDir | MakeSock});
    let allowed: [(&str, BitFlags<AccessFs>); 2] = [
        // `workerd` opens the root directory itself.
        ("/", AccessFs::ReadDir.into()),
        (RANDOM, AccessFs::ReadFile.into()),
    ];
    for (path, access) in allowed.into_iter().chain(LIBRARIES.map(|path| (path, library))) {
        if let Ok(path) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(path, access))?;
        }
    }
    let program = make_bitflags!(AccessFs::{Execute | ReadFile});
    let status = rules
        .add_rule(PathBeneath::new(PathFd::new(&paths.workerd)?, program))?
        .add_rule(PathBeneath::new(PathFd::new(&paths.folder)?, folder))?
        .restrict_self()?;
    ensure!(status.ruleset != RulesetStatus::NotEnforced, "the kernel has no Landlock");
    Ok(())
}

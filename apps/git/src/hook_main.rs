//! `svc-git-hook`, the hooks of git. git starts it several times for each push. A small program starts faster than
//! `svc-git`.

use std::env;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = env::args_os();
    let name = arguments.next().unwrap_or_default();
    git_node::hook::run(Path::new(&name), arguments.next().as_deref().and_then(|phase| phase.to_str()))
}

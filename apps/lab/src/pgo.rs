//! `pgo`: builds the server with profile-guided optimization. An instrumented server counts which code a load executes,
//! and the compiler optimizes the next build with these counts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Result, ensure};
use kernel::ClockRng;
use xtask::services::Services;
use xtask::workspace::{self, print_step};

use crate::bench::machine::{NO_BUILD, with_services};

/// The load: the parts of the API benchmark with requests.
const LOAD: [&str; 5] = ["bench", "--parts", "limit,scale", "--projects", "100000"];

/// The paths and the target of a build.
struct Build {
    /// The target triple of this machine.
    host: String,
    /// The folder into which cargo builds.
    target: PathBuf,
    /// The folder of the profile and of the instrumented programs.
    folder: PathBuf,
    /// `llvm-profdata` of the toolchain.
    merge: PathBuf,
}

pub async fn run() -> Result<ExitCode> {
    let build = Build::find()?;
    with_services(async |services, _| {
        let profile = build.profile(services).await?;
        build.build_server(services, &build.target, &format!("-Cprofile-use={}", profile.display())).await?;
        Ok(ExitCode::SUCCESS)
    })
    .await
}

impl Build {
    fn find() -> Result<Self> {
        let host = rustc("host-tuple")?;
        let libraries = PathBuf::from(rustc("target-libdir")?);
        let merge = libraries.with_file_name("bin").join("llvm-profdata");
        ensure!(merge.is_file(), "llvm-profdata is not installed: rustup component add llvm-tools");
        let target = workspace::target_folder()?;
        let folder = target.join("pgo");
        Ok(Self { host, target, folder, merge })
    }

    /// Builds the server with these compiler flags. They do not apply to build scripts and procedural macros, because
    /// the build has a target. Both builds select the same packages: the names of functions, which the counts contain,
    /// depend on the features of all selected packages.
    async fn build_server(&self, services: &mut Services, folder: &Path, flags: &str) -> Result<()> {
        let start = Instant::now();
        let mut cargo = workspace::cargo(&["build", "--release", "--locked", "-p", "server"])?;
        self.select(&mut cargo, folder).env("RUSTFLAGS", flags);
        run_to_end(services, cargo, "failed to build the server").await?;
        print_step("Server", format!("built in {}", folder.join(&self.host).display()), start);
        Ok(())
    }

    /// Selects the folder and the target of a command's builds.
    fn select<'a>(&self, command: &'a mut Command, folder: &Path) -> &'a mut Command {
        command.env("CARGO_TARGET_DIR", folder).env("CARGO_BUILD_TARGET", &self.host)
    }

    /// Runs the load with an instrumented server. Returns the file with the profile.
    async fn profile(&self, services: &mut Services) -> Result<PathBuf> {
        // cargo builds dependencies again only if the flags change, so each profile has its own name.
        let profile = format!("server-{}.profdata", ClockRng::system().id::<uuid::Uuid>().simple());
        let (counts, profile) = (self.folder.join("counts"), self.folder.join(profile));
        if counts.exists() {
            fs::remove_dir_all(&counts)?;
        }
        let instrumented = self.folder.join("instrumented");
        self.build_server(services, &instrumented, &format!("-Cprofile-generate={}", counts.display())).await?;
        let mut load = Command::new(std::env::current_exe()?);
        self.select(load.args(LOAD).env(NO_BUILD, "1"), &instrumented);
        run_to_end(services, load, "the load failed").await?;
        let mut merge = Command::new(&self.merge);
        merge.arg("merge").arg("-o").arg(&profile).arg(&counts);
        run_to_end(services, merge, "failed to merge the counts").await?;
        Ok(profile)
    }
}

/// Returns what the compiler prints about itself.
fn rustc(property: &str) -> Result<String> {
    let output = Command::new("rustc").args(["--print", property]).current_dir(workspace::root()?).output()?;
    ensure!(output.status.success(), "rustc: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

async fn run_to_end(services: &mut Services, command: Command, failure: &'static str) -> Result<()> {
    ensure!(services.signals.run(command).await?.success(), failure);
    Ok(())
}

//! Memory, disk and processor time of all programs that the lab started.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;

use crate::usage;

/// The size of a block in the metadata of a file.
const BLOCK_BYTES: u64 = 512;

/// The memory and the disk space of all programs.
pub struct Resources {
    /// The number of processes and their memory in MB, by program.
    programs: BTreeMap<String, (usize, f64)>,
    /// In MB.
    pub disk: f64,
}

/// The processor time during a measurement, in cores.
pub struct Processors {
    pub platform: f64,
    /// That of the lab, which generates the load.
    pub lab: f64,
}

impl Resources {
    pub fn read(folders: &[PathBuf]) -> Result<Self> {
        let mut programs: BTreeMap<String, (usize, f64)> = BTreeMap::new();
        for process in usage::descendants(std::process::id())? {
            // A process may end while the others are read.
            let (Ok(name), Ok(memory)) = (usage::name(process), usage::proportional_memory(process)) else { continue };
            let (processes, sum) = programs.entry(name).or_default();
            *processes += 1;
            *sum += memory;
        }
        let bytes = folders.iter().map(|folder| disk_bytes(folder)).sum::<Result<u64>>()?;
        Ok(Self { programs, disk: bytes as f64 / 1e6 })
    }

    /// Returns the memory of all programs in MB.
    pub fn memory(&self) -> f64 {
        self.programs.values().map(|(_, memory)| memory).sum()
    }

    /// Returns the programs with their number of processes and their memory in MB.
    pub fn programs(&self) -> impl Iterator<Item = (&str, usize, f64)> {
        self.programs.iter().map(|(name, (processes, memory))| (name.as_str(), *processes, *memory))
    }

    /// Describes the growth for each of `count` projects.
    pub fn since(&self, before: &Self, count: usize) -> String {
        let each = |now: f64, before: f64| (now - before) / count.max(1) as f64;
        format!(
            "{:.2} MB of memory and {:.2} MB on the disk",
            each(self.memory(), before.memory()),
            each(self.disk, before.disk)
        )
    }
}

impl Processors {
    /// Measures the processor time while `work` runs. Also returns the result of `work`.
    pub async fn measure<T>(work: impl Future<Output = T>) -> Result<(Self, T)> {
        let (start, before) = (Instant::now(), cpu_times()?);
        let lab = usage::cpu_time(std::process::id())?;
        let done = work.await;
        let elapsed = start.elapsed().as_secs_f64();
        let lab = (usage::cpu_time(std::process::id())? - lab) / elapsed;
        let used: f64 = cpu_times()?
            .into_iter()
            .map(|(process, time)| time - before.get(&process).copied().unwrap_or_default())
            .sum();
        Ok((Self { platform: used / elapsed, lab }, done))
    }
}

/// Returns the processor time of each process that the lab started, in seconds.
fn cpu_times() -> Result<BTreeMap<u32, f64>> {
    let processes = usage::descendants(std::process::id())?;
    // A process may end while the others are read.
    Ok(processes.into_iter().filter_map(|process| Some((process, usage::cpu_time(process).ok()?))).collect())
}

/// Returns the disk space of a folder.
fn disk_bytes(path: &Path) -> Result<u64> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        // Postgres deletes files at any time.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = metadata.blocks() * BLOCK_BYTES;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            bytes += disk_bytes(&entry?.path())?;
        }
    }
    Ok(bytes)
}

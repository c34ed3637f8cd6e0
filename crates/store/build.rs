//! Generates the list of the migrations in `migrations/`, so that a new migration needs no other change.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo runs build scripts in the crate's folder.
    let folder = Path::new("../../migrations").canonicalize()?;
    // For a folder, Cargo compares the modification times of all files in it.
    println!("cargo:rerun-if-changed={}", folder.display());
    let entries = fs::read_dir(&folder)?.map(|entry| Ok(entry?.path()));
    let mut migrations = entries.collect::<Result<Vec<PathBuf>, Box<dyn Error>>>()?;
    migrations.sort();
    let list = migrations.iter().map(|path| migration(path)).collect::<Result<String, _>>()?;
    let output = env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    fs::write(PathBuf::from(output).join("migrations.rs"), format!("&[\n{list}]\n"))?;
    Ok(())
}

fn migration(folder: &Path) -> Result<String, Box<dyn Error>> {
    let name = folder.file_name().and_then(|name| name.to_str()).ok_or("the name of a migration is not UTF-8")?;
    let (up, down) = (folder.join("up.sql"), folder.join("down.sql"));
    Ok(format!("    Migration {{ name: {name:?}, up: include_str!({up:?}), down: include_str!({down:?}) }},\n"))
}

//! Writes the list of the migrations from the folders in `migrations/`, so that adding one changes no file.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo runs this in the crate's folder.
    let folder = Path::new("../../migrations").canonicalize()?;
    // Cargo looks at the modification times of everything below.
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
    let name = folder.file_name().and_then(|name| name.to_str()).ok_or("a migration's name is not UTF-8")?;
    let (up, down) = (folder.join("up.sql"), folder.join("down.sql"));
    Ok(format!("    Migration {{ name: {name:?}, up: include_str!({up:?}), down: include_str!({down:?}) }},\n"))
}

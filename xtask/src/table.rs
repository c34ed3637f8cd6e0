//! Tables in the terminal.

use std::io;

use crate::output::out;

/// Prints a head and rows in aligned columns. `limit` is the maximum number of rows of a list.
pub fn print<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>, limit: i64) -> io::Result<()> {
    let rows: Vec<[String; N]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter().filter_map(|row| row.get(column)).map(|it| it.chars().count()).max().unwrap_or(0)
    });
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        out!("{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    if rows.len() as i64 > limit {
        out!("… there may be more")?;
    }
    Ok(())
}

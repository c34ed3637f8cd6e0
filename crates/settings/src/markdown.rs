//! The reference.

use std::fmt::Write as _;

use crate::{Need, Row};

/// The table as Markdown under a heading, for the reference of settings.
#[must_use]
pub fn markdown(title: &str, table: &[Row]) -> String {
    let mut text = format!("## {title}\n\n| setting | default | meaning |\n|---|---|---|\n");
    for row in table {
        let name = row.name;
        let or_file = if row.secret { format!(" or `{name}_FILE`") } else { String::new() };
        let default = match row.need {
            Need::Required => "required".to_owned(),
            Need::Optional => "—".to_owned(),
            Need::Default(value) => format!("`{}`", cell(value)),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{name}`{or_file} | {default} | {} |", cell(row.meaning));
    }
    text
}

fn cell(text: &str) -> String {
    text.trim().replace('|', r"\|")
}

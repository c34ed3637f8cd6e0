//! The Markdown reference of settings.

use std::fmt::Write as _;

use crate::{Requirement, Row};

/// Renders the table as Markdown, under a heading.
#[must_use]
pub fn markdown(title: &str, table: &[Row]) -> String {
    let mut text = format!("## {title}\n\n| setting | default | meaning |\n|---|---|---|\n");
    for row in table {
        let name = row.name;
        let or_file = if row.secret { format!(" or `{name}_FILE`") } else { String::new() };
        let default = match row.requirement {
            Requirement::Required => "required".to_owned(),
            Requirement::Optional => "—".to_owned(),
            Requirement::Default(value) => format!("`{}`", cell(value)),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{name}`{or_file} | {default} | {} |", cell(row.meaning));
    }
    text
}

fn cell(text: &str) -> String {
    text.trim().replace('|', r"\|")
}

//! Prints the logs of the services in a short form. The log files contain the complete lines.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _, stdout};
use std::time::Duration;

use serde_json::Value;
use tokio::time::interval;

/// Follows a log file and prints each line with the name of the program.
pub async fn follow(name: &'static str, mut log: File) {
    let mut unfinished = Vec::new();
    let mut interval = interval(Duration::from_millis(50));
    loop {
        interval.tick().await;
        if log.read_to_end(&mut unfinished).is_err() {
            return;
        }
        let end = unfinished.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let rest = unfinished.split_off(end);
        let mut out = stdout().lock();
        for line in String::from_utf8_lossy(&unfinished).lines() {
            // Ignore a closed stdout: the file has the line.
            let _ = writeln!(out, "{name:>6} | {}", summarize(line).as_deref().unwrap_or(line));
        }
        unfinished = rest;
    }
}

/// Returns the level, message and fields of a JSON line.
fn summarize(line: &str) -> Option<String> {
    let line: Value = serde_json::from_str(line).ok()?;
    let fields = line.get("fields")?.as_object()?;
    let mut text = format!("{:5} {}", line.get("level")?.as_str()?, fields.get("message")?.as_str()?);
    for (name, value) in fields.iter().filter(|(name, _)| *name != "message") {
        // Writing to a string cannot fail.
        let _ = match value.as_str() {
            Some(value) => write!(text, " {name}={value}"),
            None => write!(text, " {name}={value}"),
        };
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lines_are_summarized_and_others_unchanged() {
        let line = r#"{"timestamp":"t","level":"INFO","fields":{"message":"request completed","route":"/readyz","status":200},"span":{}}"#;
        assert_eq!(summarize(line).as_deref(), Some("INFO  request completed route=/readyz status=200"));
        assert_eq!(summarize("thread 'main' panicked"), None);
    }
}

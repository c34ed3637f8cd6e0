//! What the programs write, as it is shown: the file keeps each line as it was written.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _, stdout};
use std::time::Duration;

use serde_json::Value;
use tokio::time::interval;

/// Shows a growing log, line by line, under the name of who writes it.
pub async fn follow(name: &'static str, mut log: File) {
    let mut unfinished = Vec::new();
    let mut glance = interval(Duration::from_millis(50));
    loop {
        glance.tick().await;
        if log.read_to_end(&mut unfinished).is_err() {
            return;
        }
        let end = unfinished.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let rest = unfinished.split_off(end);
        let mut out = stdout().lock();
        for line in String::from_utf8_lossy(&unfinished).lines() {
            // Nobody may be reading any more; the file has it.
            let _ = writeln!(out, "{name:>6} | {}", brief(line).as_deref().unwrap_or(line));
        }
        unfinished = rest;
    }
}

/// Level, message and fields of a line that is JSON: the rest is for machines.
fn brief(line: &str) -> Option<String> {
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
    fn json_becomes_brief_and_all_else_stays() {
        let line = r#"{"timestamp":"t","level":"INFO","fields":{"message":"answered","route":"/readyz","status":200},"span":{}}"#;
        assert_eq!(brief(line).as_deref(), Some("INFO  answered route=/readyz status=200"));
        assert_eq!(brief("thread 'main' panicked"), None);
    }
}

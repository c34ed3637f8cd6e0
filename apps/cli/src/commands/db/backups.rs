//! The backups of a database: its generations.

use std::fmt;
use std::str::FromStr;

use client::Client;
use client::types::Generation;

use crate::error::CliError;
use crate::output::{bytes, or_dash, table};
use crate::svc::Svc;

/// The number of a backup: the epoch of the project and a sequence number, such as `1.42`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupNumber {
    pub epoch: i64,
    pub seq: i64,
}

impl FromStr for BackupNumber {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = |part: &str| part.parse().ok().filter(|number: &i64| *number > 0);
        let number =
            text.split_once('.').and_then(|(epoch, seq)| Some(Self { epoch: parse(epoch)?, seq: parse(seq)? }));
        number.ok_or("expected a number of `svc db backups`, such as 1.42")
    }
}

impl fmt::Display for BackupNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.seq)
    }
}

impl From<&Generation> for BackupNumber {
    fn from(generation: &Generation) -> Self {
        Self { epoch: generation.epoch, seq: generation.seq }
    }
}

pub async fn list(svc: &Svc<'_>, (client, org, project): (&Client, &str, &str)) -> Result<(), CliError> {
    let generations = client.database_generations(org, project).send().await?;
    svc.out.response(&generations, |generations| {
        let row = |it: &Generation| {
            let number = BackupNumber::from(it).to_string();
            [number, it.kind.to_string(), bytes(it.size_bytes), it.created_at.clone(), it.sha256.clone()]
        };
        table(["NUMBER", "KIND", "SIZE", "CREATED", "SHA-256"], generations.items.iter().map(row))
    })?;
    svc.out.info(format!("last checked: {}", or_dash(generations.last_checked_at.as_deref())));
    Ok(())
}

/// Returns the number, the time and the kind of a backup.
pub fn summary(generation: &Generation) -> String {
    format!("{} of {}, {}", BackupNumber::from(generation), generation.created_at, generation.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_has_two_positive_parts() {
        let number: BackupNumber = "3.12".parse().unwrap();
        assert_eq!((number, number.to_string().as_str()), (BackupNumber { epoch: 3, seq: 12 }, "3.12"));
        for text in ["", "3", "3.", ".12", "3.0", "0.12", "3.-1", "3.12.1", "latest", "3,12"] {
            assert!(text.parse::<BackupNumber>().is_err(), "{text}");
        }
    }
}

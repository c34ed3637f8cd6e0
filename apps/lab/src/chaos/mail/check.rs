//! The comparison of the journal with the log and with the relay.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use sandbox::ReceivedMail;
use serde_json::Value;

use super::client::Sent;

const RECEIVED: &str = "\
    SELECT pg_temp.public_id('mail', id) AS id, subject, project_id FROM mail.messages WHERE direction = 'in'";
const REPLIES: &str = "\
    SELECT pg_temp.public_id('mail', id) AS id, subject, outcome FROM mail.messages WHERE direction = 'out'";

/// The projects that receive each mail.
const PROJECTS: usize = 2;

/// The maximum number of mails that workers handle at the same time: the server leases five mails of each project. It
/// relays fewer replies: four of an organization.
pub const MAX_IN_PROGRESS: usize = 10;

/// The result of a run.
#[derive(Default)]
pub struct Report {
    pub acknowledged: usize,
    /// Mails without a reply to their end.
    pub unknown: usize,
    /// The copies of mails in the logs.
    pub stored: usize,
    /// The calls of `email()` after the first one for a mail.
    pub handled_again: usize,
    pub replies: usize,
    /// The arrivals at the relay after the first one of a reply.
    pub relayed_again: usize,
    pub violations: Vec<String>,
}

/// Compares the journal with the log, the log with the replies, and the replies with the relay's mails. Each kill may
/// repeat any mail and any reply, but in total at most `max_repetitions` of each are repeated.
pub async fn compare(
    database: &str,
    journal: &[Sent],
    relayed: &[ReceivedMail],
    kills: usize,
    max_repetitions: usize,
) -> Result<Report> {
    let (received, replies) = (rows(database, RECEIVED).await?, rows(database, REPLIES).await?);
    let mut report = Report { stored: received.len(), replies: replies.len(), ..Report::default() };
    report.check_log(journal, &received)?;
    report.check_replies(&received, &replies, kills)?;
    report.check_relay(&replies, relayed, kills)?;
    for (count, repeated) in
        [(report.handled_again, "mails were handled"), (report.relayed_again, "replies were relayed")]
    {
        if count > max_repetitions {
            report.violations.push(format!("{count} {repeated} again, which is more than {max_repetitions}"));
        }
    }
    Ok(report)
}

async fn rows(database: &str, statement: &str) -> Result<Vec<Value>> {
    chaos::rows(database, statement).await
}

fn text<'a>(row: &'a Value, column: &str) -> Result<&'a str> {
    row.get(column).and_then(Value::as_str).with_context(|| format!("no {column} in {row}"))
}

impl Report {
    /// Each acknowledged mail is in the log of each project once. Each other mail is in all logs or in none.
    fn check_log(&mut self, journal: &[Sent], received: &[Value]) -> Result<()> {
        let mut projects: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for row in received {
            projects.entry(text(row, "subject")?).or_default().push(text(row, "project_id")?);
        }
        for Sent { subject, acknowledged } in journal {
            let mut copies = projects.remove(subject.as_str()).unwrap_or_default();
            let count = copies.len();
            copies.sort_unstable();
            copies.dedup();
            let is_complete = count == PROJECTS && copies.len() == PROJECTS;
            if *acknowledged {
                self.acknowledged += 1;
            } else {
                self.unknown += 1;
            }
            if !is_complete && (*acknowledged || count > 0) {
                self.violations.push(format!("{subject} (acknowledged: {acknowledged}) is stored {count} times"));
            }
        }
        self.violations.extend(projects.keys().map(|subject| format!("{subject} is not in the journal")));
        Ok(())
    }

    /// Each mail of the log has a reply. A kill can repeat a call of `email()`, so that it has another one.
    fn check_replies(&mut self, received: &[Value], replies: &[Value], kills: usize) -> Result<()> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for row in replies {
            let subject = text(row, "subject")?;
            *counts.entry(subject.split(' ').next().unwrap_or_default()).or_default() += 1;
        }
        for row in received {
            let id = text(row, "id")?;
            let count = counts.remove(id).unwrap_or(0);
            self.handled_again += count.saturating_sub(1);
            if !(1..=1 + kills).contains(&count) {
                self.violations.push(format!("{id} has {count} replies"));
            }
        }
        self.violations.extend(counts.keys().map(|id| format!("a reply names {id}, which is not in the log")));
        Ok(())
    }

    /// Each reply is at the relay. A kill can repeat it, with the same bytes.
    fn check_relay(&mut self, replies: &[Value], relayed: &[ReceivedMail], kills: usize) -> Result<()> {
        let mut messages: BTreeMap<String, Vec<&[u8]>> = BTreeMap::new();
        for mail in relayed {
            let head = String::from_utf8_lossy(&mail.raw);
            let id = head.lines().find_map(|line| line.strip_prefix("Message-ID: <")?.split('@').next());
            messages.entry(id.unwrap_or_default().to_owned()).or_default().push(&mail.raw);
        }
        for row in replies {
            let (id, outcome) = (text(row, "id")?, text(row, "outcome")?);
            let copies = messages.remove(id).unwrap_or_default();
            self.relayed_again += copies.len().saturating_sub(1);
            let is_same = copies.windows(2).all(|pair| pair.first() == pair.last());
            if outcome != "sent" || !is_same || !(1..=1 + kills).contains(&copies.len()) {
                let count = copies.len();
                self.violations
                    .push(format!("the reply {id} is {outcome}, was relayed {count} times, same: {is_same}"));
            }
        }
        self.violations.extend(messages.keys().map(|id| format!("the relay has {id}, which is not in the log")));
        Ok(())
    }
}

//! Reads the commands at the start of a push (gitprotocol-pack(5), "Reference Update Request and Packfile Transfer")
//! before git receives them: updates of refs, shallow commits, and push options. The node refuses a push that the
//! journal cannot record. It also limits the commands, because git reads all of them into memory.

use std::collections::HashSet;

use crate::update::{InvalidUpdate, MAX_UPDATES, Update};

/// The maximum number of lines before the pack of a push.
const MAX_LINES: usize = 10_000;
/// The maximum total length of these lines, in bytes.
const MAX_BYTES: usize = 8 << 20;
/// The start of the pack, which follows the commands. A push that only deletes refs has no pack.
const PACK: &[u8] = b"PACK";

/// The commands are refused. Contains the reason for the user.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCommands {
    #[error("the push has more than {MAX_LINES} updates of refs and options, or they are too long")]
    TooMany,
    #[error("the push begins with a malformed command")]
    Malformed,
    #[error(transparent)]
    Update(#[from] InvalidUpdate),
}

/// Reads the commands in the input of `git receive-pack`.
#[derive(Debug, Default)]
pub struct CommandReader {
    lines: usize,
    bytes: usize,
    /// The names of the updated refs.
    names: HashSet<String>,
    /// The updates that the caller has not taken yet.
    updates: Vec<Update>,
    /// The digits received so far of the next line's length.
    length: Vec<u8>,
    /// The part received so far of the current line.
    line: Vec<u8>,
    /// The number of bytes of the current line that have not been received.
    rest: usize,
    stage: Stage,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Commands,
    /// Push options, if the client uses them, or the pack.
    Options,
    Pack,
}

impl CommandReader {
    /// Reads a part of the input. Ignores everything after the commands and push options.
    ///
    /// # Errors
    /// Returns an error if the node does not accept a command. git must not receive this part of the input.
    pub fn read(&mut self, mut input: &[u8]) -> Result<(), InvalidCommands> {
        while !input.is_empty() && self.stage != Stage::Pack {
            if self.rest == 0 {
                let (digits, after) = input.split_at(input.len().min(4 - self.length.len()));
                self.length.extend_from_slice(digits);
                input = after;
                if self.length.len() == 4 {
                    self.start_line()?;
                }
            } else {
                let (content, after) = input.split_at(input.len().min(self.rest));
                self.line.extend_from_slice(content);
                self.rest -= content.len();
                self.bytes += content.len();
                input = after;
                if self.rest == 0 {
                    self.end_line()?;
                }
            }
            if self.lines > MAX_LINES || self.bytes > MAX_BYTES {
                return Err(InvalidCommands::TooMany);
            }
        }
        Ok(())
    }

    /// Returns the updates that were read since the last call.
    pub fn take_updates(&mut self) -> Vec<Update> {
        std::mem::take(&mut self.updates)
    }

    fn start_line(&mut self) -> Result<(), InvalidCommands> {
        let digits = std::mem::take(&mut self.length);
        if self.stage == Stage::Options && digits == PACK {
            self.stage = Stage::Pack;
            return Ok(());
        }
        let digits = str::from_utf8(&digits).ok().filter(|it| it.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match digits.and_then(|digits| usize::from_str_radix(digits, 16).ok()) {
            // A flush packet: the end of the commands or of the push options.
            Some(0) => self.stage = Stage::Options,
            Some(length) if length >= 4 => {
                self.rest = length - 4;
                self.lines += 1;
                if self.rest == 0 {
                    self.end_line()?;
                }
            }
            _ => return Err(InvalidCommands::Malformed),
        }
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), InvalidCommands> {
        let line = std::mem::take(&mut self.line);
        if self.stage != Stage::Commands {
            return Ok(());
        }
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        // The capabilities of the client follow the command.
        let command = line.split(|byte| *byte == 0).next().unwrap_or_default();
        if command.starts_with(b"shallow ") {
            return Ok(());
        }
        let update = Update::parse(command)?.ok_or(InvalidCommands::Malformed)?;
        if !self.names.insert(update.name.clone()) {
            return Err(InvalidUpdate::Duplicate(update.name).into());
        }
        if self.names.len() > MAX_UPDATES {
            return Err(InvalidUpdate::TooMany.into());
        }
        self.updates.push(update);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<u8> {
        format!("{:04x}{text}", text.len() + 4).into_bytes()
    }

    fn update(old: u8, new: u8, rest: &str) -> Vec<u8> {
        line(&format!("{old:040} {new:040} refs/{rest}"))
    }

    /// Passes an input to the reader in parts of this size.
    fn read(input: &[u8], part: usize) -> Result<CommandReader, InvalidCommands> {
        let mut reader = CommandReader::default();
        input.chunks(part).try_for_each(|part| reader.read(part))?;
        Ok(reader)
    }

    #[test]
    fn commands_and_options_are_limited() {
        let plain = [update(0, 1, "heads/main\0 report-status"), b"0000".to_vec()].concat();
        let options = [update(0, 1, "heads/main\0 push-options"), b"0000".to_vec()].concat();
        let shallow = line(&format!("shallow {:040}", 1));
        let many = shallow.repeat(MAX_LINES + 1);
        let long = line(&format!("shallow {}", "1".repeat(60_000))).repeat(200);
        for part in [1, 3, 4, 1000] {
            let reader = read(&[plain.clone(), b"PACK".repeat(1000)].concat(), part).unwrap();
            assert!(reader.stage == Stage::Pack && reader.lines == 1);
            assert_eq!(read(&options, part).unwrap().stage, Stage::Options);
            let pushed = [&shallow, &options, &line("ci.skip")[..], b"0000PACK"].concat();
            assert_eq!(read(&pushed, part).unwrap().stage, Stage::Pack);
            for input in [&many, &[&options[..], &line("x").repeat(MAX_LINES)].concat()] {
                assert_eq!(read(input, part).unwrap_err(), InvalidCommands::TooMany);
            }
            let updates: Vec<u8> = (0..=MAX_UPDATES).flat_map(|tag| update(0, 1, &format!("tags/{tag}"))).collect();
            assert_eq!(read(&updates, part).unwrap_err(), InvalidUpdate::TooMany.into());
        }
        assert_eq!(read(&long, 1000).unwrap_err(), InvalidCommands::TooMany);
    }

    /// git would read these commands in another way, or not at all.
    #[test]
    fn malformed_commands_are_refused() {
        for text in [&b"zzzz"[..], b"0001", b"0004", b"+020", b"PACK", &line("push-cert\0"), &line("1 ref:x refs/x")] {
            assert!(read(text, 1).is_err(), "{}", String::from_utf8_lossy(text));
        }
        let name = InvalidUpdate::Name("refs/heads/-x".to_owned());
        assert_eq!(read(&update(0, 1, "heads/-x\0atomic"), 4).unwrap_err(), name.into());
        let twice = [update(0, 1, "heads/x\0atomic"), update(1, 0, "heads/x")].concat();
        let duplicate = InvalidUpdate::Duplicate("refs/heads/x".to_owned());
        assert_eq!(read(&twice, 4).unwrap_err(), duplicate.into());
    }

    #[test]
    fn updates_are_returned_once() {
        let mut reader = read(&[update(1, 0, "heads/a\n"), update(0, 1, "heads/b")].concat(), 7).unwrap();
        let object = Some(format!("{:040}", 1));
        let deleted = Update { name: "refs/heads/a".to_owned(), old: object.clone(), new: None };
        let created = Update { name: "refs/heads/b".to_owned(), old: None, new: object };
        assert_eq!(reader.take_updates(), [deleted, created]);
        assert!(reader.take_updates().is_empty());
    }
}

//! The list of commands at the start of a push (gitprotocol-pack(5)), which git reads into memory as a whole: updates
//! of refs, shallow commits, and push options. The node counts the commands before git receives them.

/// The largest number of lines before the pack of a push. The hook has a lower limit on the number of refs, and names
/// it in its error. Most large pushes exceed that limit first.
const MAX_LINES: usize = 10_000;
/// The largest total length of these lines, in bytes.
const MAX_BYTES: usize = 8 << 20;
/// The start of the pack, which follows the commands. A push that only deletes has none.
const PACK: &[u8] = b"PACK";

/// The push has too many commands.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the push has more than {MAX_LINES} updates of refs and options, or they are too long")]
pub struct TooManyCommands;

/// Counts the commands in the input of `git receive-pack`.
#[derive(Debug, Default)]
pub struct CommandCounter {
    lines: usize,
    bytes: usize,
    /// The digits of the next line's length.
    length: Vec<u8>,
    /// The number of bytes of the current line that have not been read.
    rest: usize,
    is_done: bool,
}

impl CommandCounter {
    /// Counts a part of the input. Ignores everything after the commands.
    pub fn count(&mut self, mut input: &[u8]) -> Result<(), TooManyCommands> {
        while !input.is_empty() && !self.is_done {
            if self.rest == 0 {
                let (digits, after) = input.split_at(input.len().min(4 - self.length.len()));
                self.length.extend_from_slice(digits);
                input = after;
                if self.length.len() == 4 {
                    self.start_line();
                }
            } else {
                let (content, after) = input.split_at(input.len().min(self.rest));
                self.rest -= content.len();
                self.bytes += content.len();
                input = after;
            }
            if self.lines > MAX_LINES || self.bytes > MAX_BYTES {
                return Err(TooManyCommands);
            }
        }
        Ok(())
    }

    fn start_line(&mut self) {
        let digits = std::mem::take(&mut self.length);
        let length = str::from_utf8(&digits).ok().and_then(|digits| usize::from_str_radix(digits, 16).ok());
        match length {
            _ if digits == PACK => self.is_done = true,
            // The end of the commands or of the push options: more lines may follow.
            Some(0) => {}
            Some(length) if length >= 4 => {
                self.rest = length - 4;
                self.lines += 1;
            }
            // git rejects such a line.
            _ => self.is_done = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<u8> {
        format!("{:04x}{text}", text.len() + 4).into_bytes()
    }

    /// Counts an input in parts of this size.
    fn count(input: &[u8], part: usize) -> Result<CommandCounter, TooManyCommands> {
        let mut counter = CommandCounter::default();
        input.chunks(part).try_for_each(|part| counter.count(part))?;
        Ok(counter)
    }

    #[test]
    fn commands_and_options_are_limited() {
        let command = |capabilities: &str| line(&format!("{:040} {:040} refs/heads/main\0{capabilities}", 0, 1));
        let plain = [command(" report-status"), b"0000".to_vec()].concat();
        let options = [command(" push-options"), b"0000".to_vec()].concat();
        let many = line("x").repeat(MAX_LINES);
        let long = line(&"x".repeat(60_000)).repeat(200);
        for part in [1, 3, 4, 1000] {
            let counter = count(&[plain.clone(), b"PACK".repeat(1000)].concat(), part).unwrap();
            assert!(counter.is_done && counter.lines == 1);
            assert!(!count(&options, part).unwrap().is_done);
            assert!(count(&[&options[..], &line("ci.skip"), b"0000PACK"].concat(), part).unwrap().is_done);
            for input in [&[&command("")[..], &many].concat(), &[&options[..], &many].concat()] {
                assert_eq!(count(input, part).unwrap_err(), TooManyCommands);
            }
        }
        assert_eq!(count(&long, 1000).unwrap_err(), TooManyCommands);
        // git rejects malformed lines itself.
        assert!(count(b"zzzz", 1).unwrap().is_done && count(b"0001", 1).unwrap().is_done);
    }
}

//! Server-sent events (HTML standard, "Server-sent events").

use bytes::{Bytes, BytesMut};

/// The longest event.
const MAX_EVENT_BYTES: usize = 1 << 20;

/// Splits a stream into events, and does not change them.
#[derive(Default)]
pub struct EventSplitter {
    buffer: BytesMut,
    /// The number of bytes at the start of the buffer that were searched and contain no end of an event.
    searched: usize,
}

/// An event is too long.
#[derive(Debug)]
pub struct TooLong;

impl EventSplitter {
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// Returns the next whole event, with the blank line at its end.
    ///
    /// # Errors
    /// Returns an error for an event of more than a mebibyte.
    pub fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        // A line ends with CRLF, LF or CR, so the end of an event has up to four bytes. The last three searched bytes
        // may be the start of such an end, so they are searched again.
        let mut at = self.searched.saturating_sub(3);
        while let Some(rest) = self.buffer.get(at..).filter(|rest| !rest.is_empty()) {
            match blank_line(rest) {
                Some(length) => {
                    self.searched = 0;
                    return Ok(Some(self.buffer.split_to(at + length).freeze()));
                }
                None => at += 1,
            }
        }
        self.searched = self.buffer.len();
        if self.buffer.len() > MAX_EVENT_BYTES { Err(TooLong) } else { Ok(None) }
    }
}

/// Returns the length of the two consecutive line ends at the start of `rest`; `None` if `rest` does not start with
/// two.
fn blank_line(rest: &[u8]) -> Option<usize> {
    ["\n\n", "\r\n\r\n", "\r\r"].iter().find(|end| rest.starts_with(end.as_bytes())).map(|end| end.len())
}

/// Returns the data of an event; `None` for an event without data, such as a comment.
pub fn data(event: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(event);
    let lines = text.split(['\n', '\r']).filter_map(|line| line.strip_prefix("data:"));
    let lines: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_split_whatever_the_chunks() {
        for end in ["\n", "\r\n", "\r"] {
            let text = format!(": ping{end}{end}data: one{end}{end}event: x{end}data:two{end}data: 2{end}{end}data: ");
            for size in 1..=text.len() {
                let (mut splitter, mut events) = (EventSplitter::default(), Vec::new());
                for chunk in text.as_bytes().chunks(size) {
                    splitter.push(chunk);
                    while let Some(event) = splitter.next().unwrap() {
                        events.push(event);
                    }
                }
                let found: Vec<Option<String>> = events.iter().map(|event| data(event)).collect();
                assert_eq!(found, [None, Some("one".to_owned()), Some("two\n2".to_owned())], "{end:?} {size}");
                assert_eq!(events.concat(), text.as_bytes()[..text.len() - 6], "{end:?} {size}");
            }
        }
    }

    #[test]
    fn endless_event_is_an_error() {
        let mut splitter = EventSplitter::default();
        splitter.push(&vec![b'a'; MAX_EVENT_BYTES]);
        assert!(splitter.next().unwrap().is_none());
        splitter.push(b"a");
        splitter.next().unwrap_err();
    }
}

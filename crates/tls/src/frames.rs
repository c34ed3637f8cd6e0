//! Limits of the HTTP/2 frames that a client sends, which actix leaves open.
//!
//! The HTTP/2 implementation checks the frames themselves. This file reads only their headers (RFC 9113 section 4.1), and
//! ends a connection before its frames cost more than those of a well-behaved client.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::deliveries::MAX_STALLED;
use crate::unread_frames::UnreadFrames;

/// The length of the connection preface of a client (RFC 9113 section 3.4).
const PREFACE_BYTES: usize = 24;
const FRAME_HEADER_BYTES: usize = 9;
/// The value of `SETTINGS_MAX_FRAME_SIZE` that the server advertises: the default.
const MAX_FRAME_BYTES: usize = 16_384;
/// The size of a compressed field section: a HEADERS frame and its CONTINUATION frames, including the headers of the frames.
/// It also limits the number of distinct field names to a quarter of those that a header map can hold.
const MAX_FIELD_SECTION_BYTES: usize = 32 << 10;
/// The number of requests whose response is not sent completely. From half of them on, a response is an error page.
const MAX_OPEN_REQUESTS: usize = 512;
const RESET_PERIOD: Duration = Duration::from_secs(10);
/// The number of RST_STREAM frames per [`RESET_PERIOD`]: a browser that leaves a page resets up to 100 streams.
const MAX_RESETS: u32 = 512;
const CONTROL_PERIOD: Duration = Duration::from_secs(1);
/// The number of PRIORITY, SETTINGS, PING and empty DATA frames per [`CONTROL_PERIOD`].
const MAX_CONTROL_FRAMES: u32 = 1000;
/// The size of the response to a PING frame. The response to a SETTINGS frame is smaller.
const CONTROL_RESPONSE_BYTES: usize = 17;
/// The size of a write that does not count as data: it may contain only frames of the connection, such as pings of the server.
const MAX_CONTROL_BYTES: usize = 1024;
/// The charges for small DATA frames that the app has not read: half of the bytes that flow control allows, and 4,096 empty
/// frames.
const MAX_UNREAD_CHARGES: usize = 1 << 20;
/// How long a connection may have no request and send no data: longer than most clients keep an idle connection. The
/// connection is checked when it receives something. If the client sends nothing else, this is its response to a ping of the
/// server, up to 75 s later.
const IDLE_TIMEOUT: Duration = Duration::from_secs(180);

/// The types of frames (RFC 9113 section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
/// The flag of the last frame of a request.
const END_STREAM: u8 = 1;
/// The flag of the last frame of a field section.
const END_HEADERS: u8 = 4;
/// The flag of a frame with padding.
const PADDED: u8 = 8;
/// The largest padding, including the byte of its length.
const MAX_PADDING_BYTES: usize = 256;

/// Reads the frames of a connection.
#[derive(Debug)]
pub struct FrameLimits {
    /// The number of bytes until the next frame header: the preface at first, later the payload of a frame.
    skipped: usize,
    /// The first bytes of an incomplete frame header.
    header: Vec<u8>,
    /// The size of the incomplete field section.
    field_section: usize,
    last_stream: u32,
    /// The time of the first check since the connection had a request in progress or sent data.
    idle_since: Option<Instant>,
    open: OpenRequests,
    unread: UnreadFrames,
    resets: Window,
    /// Whether the current frame is an RST_STREAM frame.
    is_reset_frame: bool,
    /// Whether a complete RST_STREAM frame was read, until [`Self::take_reset`].
    has_reset: bool,
    control_frames: Window,
    /// The size of the responses to control frames that may not be sent yet. These do not count as data.
    unsent_responses: usize,
}

/// Counts the requests of a connection that a client opened and that have not ended. Clones share the count.
#[derive(Debug, Clone, Default)]
pub struct OpenRequests(Arc<AtomicUsize>);

/// An open request. It ends when this is dropped.
#[derive(Debug)]
pub struct OpenRequest(OpenRequests);

/// The limit that a client exceeded. The connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("a frame is larger than {MAX_FRAME_BYTES} bytes")]
    FrameSize,
    #[error("the fields of a request are larger than {MAX_FIELD_SECTION_BYTES} bytes")]
    FieldSection,
    #[error("more than {MAX_OPEN_REQUESTS} requests are open")]
    OpenRequests,
    #[error("more than {MAX_RESETS} streams were reset within {RESET_PERIOD:?}")]
    Resets,
    #[error("more than {MAX_CONTROL_FRAMES} control frames were received within {CONTROL_PERIOD:?}")]
    ControlFrames,
    #[error("too many small DATA frames are unread")]
    SmallFrames,
    #[error("the connection had no request and sent no data for {IDLE_TIMEOUT:?}")]
    Idle,
    #[error("more than {MAX_STALLED} responses are stalled")]
    UnreadResponses,
}

/// Counts frames in fixed windows.
#[derive(Debug, Default)]
struct Window {
    start: Option<Instant>,
    count: u32,
}

impl OpenRequests {
    /// Returns the guard of a request that was counted when its HEADERS frame was read.
    pub fn guard(&self) -> OpenRequest {
        OpenRequest(self.clone())
    }

    /// Counts a request. Returns the number of open ones.
    fn open(&self) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FrameLimits {
    /// Creates the limits of a new connection. A request that the HTTP/2 implementation rejects itself stays counted: a
    /// connection is closed after too many of these.
    pub const fn new(open: OpenRequests, unread: UnreadFrames) -> Self {
        Self {
            skipped: PREFACE_BYTES,
            header: Vec::new(),
            field_section: 0,
            last_stream: 0,
            idle_since: None,
            open,
            unread,
            resets: Window::new(),
            is_reset_frame: false,
            has_reset: false,
            control_frames: Window::new(),
            unsent_responses: 0,
        }
    }

    /// Reads the next received bytes, which may begin and end within a frame.
    ///
    /// # Errors
    /// Returns an error if the client exceeded a limit.
    pub fn read(&mut self, mut bytes: &[u8], now: Instant) -> Result<(), Violation> {
        while !bytes.is_empty() {
            let (_, rest) = bytes.split_at(self.skipped.min(bytes.len()));
            self.skipped -= bytes.len() - rest.len();
            if self.skipped == 0 {
                self.has_reset |= mem::take(&mut self.is_reset_frame);
            }
            let missing = FRAME_HEADER_BYTES - self.header.len();
            let (part, rest) = rest.split_at(missing.min(rest.len()));
            self.header.extend_from_slice(part);
            bytes = rest;
            if let Ok(header) = <[u8; FRAME_HEADER_BYTES]>::try_from(self.header.as_slice()) {
                self.header.clear();
                self.on_frame(header, now)?;
            }
        }
        Ok(())
    }

    /// Returns whether the client has reset a stream since the last call.
    pub fn take_reset(&mut self) -> bool {
        mem::take(&mut self.has_reset)
    }

    /// Records that bytes were sent. Returns how many of them are data of responses, or `None` if they may be none. A
    /// request ends before its data is sent: actix drops the body when it was buffered.
    pub const fn on_sent(&mut self, bytes: usize) -> Option<usize> {
        let data = bytes.saturating_sub(self.unsent_responses);
        self.unsent_responses = self.unsent_responses.saturating_sub(bytes);
        if data <= MAX_CONTROL_BYTES {
            return None;
        }
        self.idle_since = None;
        Some(data)
    }

    /// Checks how long the connection has had no request and sent no data.
    ///
    /// # Errors
    /// Returns an error if the connection must be closed.
    pub fn check_idle(&mut self, has_requests: bool, now: Instant) -> Result<(), Violation> {
        if has_requests {
            self.idle_since = None;
            return Ok(());
        }
        let since = *self.idle_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= IDLE_TIMEOUT { Err(Violation::Idle) } else { Ok(()) }
    }

    fn on_frame(&mut self, header: [u8; FRAME_HEADER_BYTES], now: Instant) -> Result<(), Violation> {
        let [high, middle, low, kind, flags, stream @ ..] = header;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        if length > MAX_FRAME_BYTES {
            return Err(Violation::FrameSize);
        }
        self.skipped = length;
        match kind {
            HEADERS | CONTINUATION => {
                self.field_section += FRAME_HEADER_BYTES + length;
                if self.field_section > MAX_FIELD_SECTION_BYTES {
                    return Err(Violation::FieldSection);
                }
                if flags & END_HEADERS != 0 {
                    self.field_section = 0;
                }
                // Trailers belong to an earlier stream. The highest bit is reserved.
                let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
                if kind == HEADERS && stream > self.last_stream {
                    self.last_stream = stream;
                    self.idle_since = None;
                    if self.open.open() > MAX_OPEN_REQUESTS {
                        return Err(Violation::OpenRequests);
                    }
                }
            }
            DATA if flags & END_STREAM == 0 => self.on_data(flags, length, now)?,
            RST_STREAM => {
                self.is_reset_frame = true;
                if self.resets.count(RESET_PERIOD, now) > MAX_RESETS {
                    return Err(Violation::Resets);
                }
            }
            PRIORITY | SETTINGS | PING => self.on_control_frame(now)?,
            _ => {}
        }
        Ok(())
    }

    /// Handles a DATA frame that does not end its request.
    fn on_data(&mut self, flags: u8, length: usize, now: Instant) -> Result<(), Violation> {
        // The HTTP/2 implementation does not count padding for flow control, contrary to RFC 9113 section 6.1.
        let content = if flags & PADDED == 0 { length } else { length.saturating_sub(MAX_PADDING_BYTES) };
        if content == 0 {
            self.on_control_frame(now)?;
        }
        if self.unread.charge(content) > MAX_UNREAD_CHARGES {
            return Err(Violation::SmallFrames);
        }
        Ok(())
    }

    fn on_control_frame(&mut self, now: Instant) -> Result<(), Violation> {
        self.unsent_responses = self.unsent_responses.saturating_add(CONTROL_RESPONSE_BYTES);
        if self.control_frames.count(CONTROL_PERIOD, now) > MAX_CONTROL_FRAMES {
            return Err(Violation::ControlFrames);
        }
        Ok(())
    }
}

impl Window {
    const fn new() -> Self {
        Self { start: None, count: 0 }
    }

    /// Counts a frame. Returns the number of frames in the current window.
    fn count(&mut self, period: Duration, now: Instant) -> u32 {
        if self.start.is_none_or(|start| now.saturating_duration_since(start) >= period) {
            (self.start, self.count) = (Some(now), 0);
        }
        self.count += 1;
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    fn frame(kind: u8, flags: u8, stream: u32, length: usize) -> Vec<u8> {
        let mut frame = u32::try_from(length).unwrap().to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.resize(FRAME_HEADER_BYTES + length, 0xff);
        frame
    }

    fn limits() -> (FrameLimits, OpenRequests) {
        let open = OpenRequests::default();
        let mut limits = FrameLimits::new(open.clone(), UnreadFrames::default());
        assert_eq!(limits.read(PREFACE, Instant::now()), Ok(()));
        (limits, open)
    }

    #[test]
    fn frames_are_found_however_they_are_split() {
        let mut bytes = PREFACE.to_vec();
        for stream in [1, 3, 5] {
            bytes.extend(frame(SETTINGS, 0, 0, 0));
            bytes.extend(frame(HEADERS, 0, stream, 20));
            bytes.extend(frame(CONTINUATION, END_HEADERS, stream, 0));
            bytes.extend(frame(0, 0, stream, 300));
            // Trailers do not open a request.
            bytes.extend(frame(HEADERS, END_HEADERS, stream, 7));
        }
        for size in [1, 2, 8, 9, 10, 33, bytes.len()] {
            let open = OpenRequests::default();
            let mut limits = FrameLimits::new(open.clone(), UnreadFrames::default());
            for part in bytes.chunks(size) {
                assert_eq!(limits.read(part, Instant::now()), Ok(()));
            }
            assert_eq!(open.0.load(Ordering::Relaxed), 3, "{size}");
            assert_eq!((limits.skipped, limits.header.len(), limits.control_frames.count), (0, 0, 3), "{size}");
        }
    }

    #[test]
    fn sizes_are_limited() {
        let now = Instant::now();
        let (mut limits, _) = limits();
        assert_eq!(limits.read(&frame(0, 0, 1, MAX_FRAME_BYTES), now), Ok(()));
        // The header of the frame is enough.
        assert_eq!(limits.read(&frame(0, 0, 1, MAX_FRAME_BYTES + 1)[..9], now), Err(Violation::FrameSize));
        let (mut limits, _) = self::limits();
        for stream in [1, 3] {
            assert_eq!(limits.read(&frame(HEADERS, 0, stream, MAX_FRAME_BYTES), now), Ok(()));
            let rest = MAX_FIELD_SECTION_BYTES - MAX_FRAME_BYTES - 2 * FRAME_HEADER_BYTES;
            assert_eq!(limits.read(&frame(CONTINUATION, END_HEADERS, stream, rest), now), Ok(()));
        }
        assert_eq!(limits.read(&frame(HEADERS, 0, 5, MAX_FRAME_BYTES), now), Ok(()));
        let rest = MAX_FIELD_SECTION_BYTES - MAX_FRAME_BYTES - 2 * FRAME_HEADER_BYTES + 1;
        assert_eq!(limits.read(&frame(CONTINUATION, END_HEADERS, 5, rest), now), Err(Violation::FieldSection));
    }

    #[test]
    fn empty_continuations_are_limited() {
        let (mut limits, _) = limits();
        assert_eq!(limits.read(&frame(HEADERS, 0, 1, 0), Instant::now()), Ok(()));
        let empty = frame(CONTINUATION, 0, 1, 0).repeat(MAX_FIELD_SECTION_BYTES / FRAME_HEADER_BYTES);
        assert_eq!(limits.read(&empty, Instant::now()), Err(Violation::FieldSection));
    }

    #[test]
    fn open_requests_are_limited() {
        let (mut limits, open) = limits();
        let mut streams = (1..).step_by(2);
        let mut send = || limits.read(&frame(HEADERS, END_HEADERS, streams.next().unwrap(), 1), Instant::now());
        for _ in 0..2 * MAX_OPEN_REQUESTS {
            assert_eq!(send(), Ok(()));
            drop(open.guard());
        }
        for _ in 0..MAX_OPEN_REQUESTS {
            assert_eq!(send(), Ok(()));
        }
        assert_eq!(send(), Err(Violation::OpenRequests));
    }

    #[test]
    fn resets_and_control_frames_are_limited_per_period() {
        let now = Instant::now();
        for (kind, max, period, violation) in [
            (RST_STREAM, MAX_RESETS, RESET_PERIOD, Violation::Resets),
            (PRIORITY, MAX_CONTROL_FRAMES, CONTROL_PERIOD, Violation::ControlFrames),
            (SETTINGS, MAX_CONTROL_FRAMES, CONTROL_PERIOD, Violation::ControlFrames),
            (PING, MAX_CONTROL_FRAMES, CONTROL_PERIOD, Violation::ControlFrames),
        ] {
            let (mut limits, _) = limits();
            let frames = frame(kind, 0, 0, 4).repeat(max as usize);
            assert_eq!(limits.read(&frames, now), Ok(()));
            assert_eq!(limits.read(&frames, now + period), Ok(()));
            assert_eq!(limits.read(&frame(kind, 0, 0, 4), now + period), Err(violation));
        }
    }

    #[test]
    fn resets_are_noticed_when_their_frame_is_complete() {
        let now = Instant::now();
        let (mut limits, _) = limits();
        let reset = frame(RST_STREAM, 0, 1, 4);
        let (first, last) = reset.split_at(reset.len() - 1);
        assert_eq!(limits.read(first, now), Ok(()));
        assert!(!limits.take_reset());
        assert_eq!(limits.read(last, now), Ok(()));
        assert!(limits.take_reset());
        assert!(!limits.take_reset());
        // Other frames surround it.
        let frames = [frame(PING, 0, 0, 8), reset, frame(HEADERS, END_HEADERS, 3, 9)].concat();
        assert_eq!(limits.read(&frames[..frames.len() - 1], now), Ok(()));
        assert!(limits.take_reset());
        assert_eq!(limits.read(&frames[frames.len() - 1..], now), Ok(()));
        assert!(!limits.take_reset());
    }

    #[test]
    fn empty_data_frames_are_limited_per_period() {
        let now = Instant::now();
        let (mut limits, _) = limits();
        let frames = frame(DATA, 0, 1, 0).repeat(MAX_CONTROL_FRAMES as usize);
        assert_eq!(limits.read(&frames, now), Ok(()));
        // The last frame of a request does not count.
        assert_eq!(limits.read(&frame(DATA, END_STREAM, 1, 0), now), Ok(()));
        assert_eq!(limits.read(&frame(DATA, 0, 3, 0), now), Err(Violation::ControlFrames));
        let (mut limits, _) = self::limits();
        let padded = frame(DATA, PADDED, 1, 256).repeat(MAX_CONTROL_FRAMES as usize);
        assert_eq!(limits.read(&padded, now), Ok(()));
        assert_eq!(limits.read(&frame(DATA, PADDED, 1, 256), now), Err(Violation::ControlFrames));
    }

    #[test]
    fn unread_small_data_frames_are_limited() {
        let mut now = Instant::now();
        let (mut limits, _) = limits();
        for _ in 0..4 {
            assert_eq!(limits.read(&frame(DATA, 0, 1, 0).repeat(1000), now), Ok(()));
            now += CONTROL_PERIOD;
        }
        // Large frames are limited by flow control.
        assert_eq!(limits.read(&frame(DATA, 0, 1, 256).repeat(10_000), now), Ok(()));
        assert_eq!(limits.read(&frame(DATA, 0, 1, 1).repeat(96), now), Ok(()));
        assert_eq!(limits.read(&frame(DATA, 0, 1, 1), now), Err(Violation::SmallFrames));
    }

    #[test]
    fn idle_time_is_limited() {
        let began = Instant::now();
        let (mut limits, _) = limits();
        let almost = IDLE_TIMEOUT - Duration::from_secs(1);
        assert_eq!(limits.check_idle(false, began), Ok(()));
        assert_eq!(limits.read(&frame(HEADERS, END_HEADERS, 1, 1), began + almost), Ok(()));
        // The request has ended before this check.
        assert_eq!(limits.check_idle(false, began + almost), Ok(()));
        assert_eq!(limits.check_idle(true, began + 2 * IDLE_TIMEOUT), Ok(()));
        let end = began + 4 * IDLE_TIMEOUT;
        assert_eq!(limits.check_idle(false, end), Ok(()));
        // Pings do not count as requests.
        assert_eq!(limits.read(&frame(PING, 0, 0, 8), end + almost), Ok(()));
        assert_eq!(limits.check_idle(false, end + almost), Ok(()));
        assert_eq!(limits.check_idle(false, end + IDLE_TIMEOUT), Err(Violation::Idle));
        // The connection still sends a response.
        assert_eq!(limits.on_sent(MAX_CONTROL_BYTES), None);
        assert_eq!(limits.check_idle(false, end + IDLE_TIMEOUT), Err(Violation::Idle));
        assert_eq!(limits.on_sent(16_384), Some(16_384));
        assert_eq!(limits.check_idle(false, end + IDLE_TIMEOUT), Ok(()));
    }

    #[test]
    fn responses_to_control_frames_are_not_data() {
        let (mut limits, _) = limits();
        let pings = frame(PING, 0, 0, 8).repeat(MAX_CONTROL_FRAMES as usize);
        assert_eq!(limits.read(&pings, Instant::now()), Ok(()));
        let responses = MAX_CONTROL_FRAMES as usize * CONTROL_RESPONSE_BYTES;
        assert_eq!(limits.on_sent(responses / 2), None);
        assert_eq!(limits.on_sent(responses / 2 + 2000), Some(2000));
        assert_eq!(limits.on_sent(2000), Some(2000));
    }
}

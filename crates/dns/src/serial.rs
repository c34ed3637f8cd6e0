//! Zone serials, compared with serial number arithmetic (RFC 1982).

use kernel::Time;

/// Returns whether a serial is newer than another (RFC 1982 section 3.2). If they differ by 2^31, neither is newer.
#[must_use]
pub fn is_newer(serial: u32, than: u32) -> bool {
    serial != than && serial.wrapping_sub(than) < 1 << 31
}

/// Returns the serial of the next change: newer than the last serial, the signer's serial and the Unix time (contract
/// section 6).
#[must_use]
pub fn next(now: Time, last: u32, signer: Option<u32>) -> u32 {
    let newest = [Some(at(now)), signer].into_iter().flatten();
    newest.fold(last, |newest, it| if is_newer(it, newest) { it } else { newest }).wrapping_add(1)
}

/// Returns the Unix time modulo 2^32 as a serial.
#[must_use]
pub fn at(now: Time) -> u32 {
    let seconds = now.unix_seconds().cast_unsigned();
    (seconds & u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: i64) -> Time {
        Time::UNIX_EPOCH.plus_seconds(seconds)
    }

    #[test]
    fn next_serial_is_newer_than_all_known_serials() {
        assert_eq!(next(time(1000), 5, None), 1001);
        assert_eq!(next(time(1000), 5000, None), 5001);
        assert_eq!(next(time(1000), 5, Some(7000)), 7001);
        assert_eq!(next(time(1000), u32::MAX, None), 1001);
        assert_eq!(next(time(4_294_967_295), 4_294_967_290, None), 0);
        assert_eq!(next(time(4_294_967_296 + 7), u32::MAX, Some(3)), 8);
    }

    #[test]
    fn serials_wrap_around() {
        assert!(is_newer(1, 0) && !is_newer(0, 1) && !is_newer(7, 7));
        assert!(is_newer(0, u32::MAX) && !is_newer(u32::MAX, 0));
        assert!(!is_newer(0, 1 << 31) && !is_newer(1 << 31, 0));
    }
}

//! Colors with a readable contrast (WCAG 2.2, success criteria 1.4.3 and 1.4.11).

use std::fmt::{self, Display, Formatter};

/// The contrast of text.
const MIN_TEXT_CONTRAST: f64 = 4.5;
/// The steps in which a color is mixed with black or white until its contrast suffices.
const STEPS: u16 = 40;

/// An sRGB color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Color([u8; 3]);

impl Color {
    pub const WHITE: Self = Self([255; 3]);
    pub const BLACK: Self = Self([0; 3]);

    /// Creates a color from its number `0xrrggbb`.
    pub const fn new(rgb: u32) -> Self {
        let [_, red, green, blue] = rgb.to_be_bytes();
        Self([red, green, blue])
    }

    /// Parses `#rrggbb`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6)?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        u32::from_str_radix(digits, 16).ok().filter(|_| is_hex).map(Self::new)
    }

    /// Returns black or white, whichever contrasts more with this color. The contrast is always at least 4.5.
    pub fn text(self) -> Self {
        if self.contrast(Self::BLACK) >= self.contrast(Self::WHITE) { Self::BLACK } else { Self::WHITE }
    }

    /// Returns the closest mix with black or white that is readable on a background.
    pub fn readable_on(self, background: Self) -> Self {
        let target = background.text();
        let mixes = (0..=STEPS).map(|step| self.mixed(target, step));
        mixes.into_iter().find(|mix| mix.contrast(background) >= MIN_TEXT_CONTRAST).unwrap_or(target)
    }

    fn mixed(self, target: Self, step: u16) -> Self {
        let mut mixed = [0; 3];
        for ((mixed, from), to) in mixed.iter_mut().zip(self.0).zip(target.0) {
            let value = (u16::from(from) * (STEPS - step) + u16::from(to) * step) / STEPS;
            *mixed = u8::try_from(value).unwrap_or(u8::MAX);
        }
        Self(mixed)
    }

    /// Returns the contrast ratio, from 1 to 21.
    pub fn contrast(self, other: Self) -> f64 {
        let (one, two) = (self.luminance(), other.luminance());
        (one.max(two) + 0.05) / (one.min(two) + 0.05)
    }

    /// Returns the relative luminance.
    fn luminance(self) -> f64 {
        let [red, green, blue] = self.0.map(|channel| {
            let channel = f64::from(channel) / 255.0;
            if channel <= 0.04045 { channel / 12.92 } else { ((channel + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }
}

impl Display for Color {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [red, green, blue] = self.0;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_brand_color_is_readable() {
        let backgrounds = [Color::WHITE, Color::new(0x16181d)];
        for red in (0..=255).step_by(15) {
            for green in (0..=255).step_by(15) {
                for blue in (0..=255).step_by(15) {
                    let color = Color::new(red << 16 | green << 8 | blue);
                    assert!(color.contrast(color.text()) >= MIN_TEXT_CONTRAST, "{color}");
                    for background in backgrounds {
                        assert!(color.readable_on(background).contrast(background) >= MIN_TEXT_CONTRAST, "{color}");
                    }
                }
            }
        }
    }

    #[test]
    fn readable_color_stays_as_it_is() {
        let blue = Color::parse("#0a58ca").unwrap();
        assert_eq!(blue.readable_on(Color::WHITE), blue);
        assert_eq!((Color::parse("#ffff00").unwrap().text(), blue.text()), (Color::BLACK, Color::WHITE));
        assert!((Color::WHITE.contrast(Color::BLACK) - 21.0).abs() < 1e-9);
        for text in ["", "#fff", "0a58ca", "#0a58cag", "#+a58ca", "#0a58c\u{e4}", "red;}"] {
            assert_eq!(Color::parse(text), None, "{text}");
        }
    }
}

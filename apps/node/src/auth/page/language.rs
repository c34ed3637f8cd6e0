//! The language of a page.

use actix_web::HttpRequest;
use actix_web::http::header::ACCEPT_LANGUAGE;

/// The languages of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    English,
    German,
    French,
    Japanese,
}

impl Language {
    const ALL: [Self; 4] = [Self::English, Self::German, Self::French, Self::Japanese];

    /// Returns the language tag (RFC 5646).
    pub const fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::German => "de",
            Self::French => "fr",
            Self::Japanese => "ja",
        }
    }

    /// Returns the language that the visitor prefers (RFC 9110 section 12.5.4), otherwise English.
    pub fn of(request: &HttpRequest) -> Self {
        let headers = request.headers().get_all(ACCEPT_LANGUAGE).filter_map(|header| header.to_str().ok());
        Self::preferred(headers.flat_map(|header| header.split(',')))
    }

    fn preferred<'a>(ranges: impl Iterator<Item = &'a str>) -> Self {
        let (mut preferred, mut best) = (Self::English, 0.0);
        for range in ranges {
            let (tag, parameters) = range.split_once(';').unwrap_or((range, ""));
            let quality = parameters.trim().strip_prefix("q=").map_or(1.0, |quality| quality.parse().unwrap_or(0.0));
            let primary = tag.trim().split('-').next().unwrap_or_default();
            let is = |language: &Self| language.tag().eq_ignore_ascii_case(primary);
            // Among languages of the same quality, the first one is preferred.
            if quality > best
                && let Some(language) = Self::ALL.into_iter().find(is)
            {
                (preferred, best) = (language, quality);
            }
        }
        preferred
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quality_decides_before_order() {
        for (header, language) in [
            ("", Language::English),
            ("de", Language::German),
            ("de-AT,en;q=0.5", Language::German),
            ("FR-ca", Language::French),
            ("en;q=0.3, ja ; q=0.9, de;q=0.8", Language::Japanese),
            ("fr;q=0.5,de;q=0.5", Language::French),
            ("nl, it, ja;q=0.1", Language::Japanese),
            ("de;q=0, en;q=0", Language::English),
            ("de;q=x, fr;q=0.001", Language::French),
            ("deu, *;q=0.5", Language::English),
            ("*", Language::English),
        ] {
            assert_eq!(Language::preferred(header.split(',')), language, "{header}");
        }
    }
}

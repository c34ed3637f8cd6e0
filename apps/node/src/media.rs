//! Media types by file extension.

use actix_web::http::header::HeaderValue;

/// Returns the `Content-Type` of an asset. Text is served as UTF-8.
pub fn content_type(name: &str) -> HeaderValue {
    let guess = guess(name);
    let text = match guess {
        "text/html" => "text/html; charset=utf-8",
        "text/css" => "text/css; charset=utf-8",
        "text/javascript" => "text/javascript; charset=utf-8",
        "text/plain" => "text/plain; charset=utf-8",
        _ if guess.starts_with("text/") => {
            let other = HeaderValue::try_from(format!("{guess}; charset=utf-8"));
            return other.unwrap_or(HeaderValue::from_static("text/plain; charset=utf-8"));
        }
        _ => guess,
    };
    HeaderValue::from_static(text)
}

/// Returns whether contents of this type are worth compressing. These are text and uncompressed binary formats.
pub fn is_compressible(name: &str) -> bool {
    let guess = guess(name);
    guess.starts_with("text/")
        || guess.ends_with("+json")
        || guess.ends_with("+xml")
        || matches!(
            guess,
            "application/json"
                | "application/javascript"
                | "application/xml"
                | "application/wasm"
                | "application/rtf"
                | "application/vnd.ms-fontobject"
                | "font/ttf"
                | "font/otf"
                | "image/bmp"
                | "image/x-icon"
        )
}

fn guess(name: &str) -> &'static str {
    mime_guess::from_path(name).first_raw().unwrap_or("application/octet-stream")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_utf_8_and_compressible() {
        for (name, expected, compressible) in [
            ("/index.html", "text/html; charset=utf-8", true),
            ("/a.CSS", "text/css; charset=utf-8", true),
            ("/a.js", "text/javascript; charset=utf-8", true),
            ("/a.csv", "text/csv; charset=utf-8", true),
            ("/a.json", "application/json", true),
            ("/a.svg", "image/svg+xml", true),
            ("/a.wasm", "application/wasm", true),
            ("/a.webmanifest", "application/manifest+json", true),
            ("/a.png", "image/png", false),
            ("/a.woff2", "font/woff2", false),
            ("/a.zip", "application/zip", false),
            ("/LICENCE", "application/octet-stream", false),
        ] {
            assert_eq!(
                (content_type(name).to_str().unwrap(), is_compressible(name)),
                (expected, compressible),
                "{name}"
            );
        }
    }
}

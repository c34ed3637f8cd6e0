//! Sessions in requests to worker code.

use actix_web::HttpResponse;
use actix_web::cookie::Cookie;
use actix_web::http::header::HeaderValue;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::store::TokenDigest;
use crate::seal::SealingKey;
use crate::shared_cache::make_private_by_default;

/// The header of a request to worker code that contains the handle of the visitor's session. The node removes it from
/// requests of visitors.
pub const HANDLE_HEADER: &str = "svc-auth-session";

/// The key of the handles.
pub struct Handles(SealingKey);

/// The session cookie of a request to worker code.
pub struct WorkerSession {
    /// The value of [`HANDLE_HEADER`].
    pub handle: HeaderValue,
    /// The cookie to send again, if it is due.
    pub renewal: Option<Cookie<'static>>,
}

impl Handles {
    /// Creates a random key, so that a handle has no meaning outside this process.
    pub fn new() -> std::io::Result<Self> {
        SealingKey::random().map(Self)
    }

    /// Returns the handle of a session, which is valid only for this project.
    pub fn seal(&self, project: &str, token: &TokenDigest) -> Option<HeaderValue> {
        let sealed = self.0.seal(project, token.as_bytes().to_vec()).ok()?;
        HeaderValue::from_str(&URL_SAFE_NO_PAD.encode(sealed)).ok()
    }

    /// Returns the session of a handle; `None` if this process did not create it for this project.
    pub fn open(&self, project: &str, handle: &str) -> Option<TokenDigest> {
        TokenDigest::read(&self.0.open(project, &URL_SAFE_NO_PAD.decode(handle).ok()?)?)
    }
}

impl WorkerSession {
    /// Adds the cookie to the response of worker code if it is due. Makes the response private, because a shared cache may
    /// store a response that does not prohibit it. A response that a shared cache is meant to store stays as it is.
    pub fn renew(self, response: &mut HttpResponse) {
        let Some(cookie) = self.renewal else { return };
        if make_private_by_default(response) {
            // This fails only for a malformed cookie.
            let _ = response.add_cookie(&cookie);
        }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::CACHE_CONTROL;

    use super::*;

    #[test]
    fn handle_belongs_to_a_project_and_a_process() {
        let (handles, token) = (Handles::new().unwrap(), TokenDigest::of(b"token"));
        let handle = handles.seal("prj_1", &token).unwrap();
        let handle = handle.to_str().unwrap();
        assert_eq!(handles.open("prj_1", handle), Some(token));
        assert_eq!((handles.open("prj_2", handle), handles.open("prj_1", "")), (None, None));
        assert_eq!(Handles::new().unwrap().open("prj_1", handle), None);
        assert_eq!(handles.open("prj_1", &handle.replace(&handle[20..21], "")), None);
    }

    #[test]
    fn cookie_is_added_only_to_private_responses() {
        for (value, renewed) in [
            (Some("no-store"), Some("no-store")),
            (Some("Private, max-age=60"), Some("Private, max-age=60")),
            (None, Some("private")),
            (Some("no-cache"), Some("no-cache, private")),
            (Some("Must-Revalidate, no-transform"), Some("Must-Revalidate, no-transform, private")),
            (Some("max-age=0, must-revalidate"), Some("max-age=0, must-revalidate, private")),
            (Some("max-age=\"0\""), Some("max-age=\"0\", private")),
            (Some("public"), None),
            (Some("no-cache, public"), None),
            (Some("Max-Age=60"), None),
            (Some("max-age"), None),
            (Some("immutable"), None),
            (Some("s-maxage=0"), None),
            (Some("private=\"set-cookie\""), None),
            (Some("private, s-maxage=1"), None),
            (Some("no-store, Public"), None),
        ] {
            let mut response = HttpResponse::Ok();
            value.map(|value| response.insert_header((CACHE_CONTROL, value)));
            let mut response = response.finish();
            let renewal = Some(Cookie::new("svc_auth", "x"));
            WorkerSession { handle: HeaderValue::from_static("x"), renewal }.renew(&mut response);
            assert_eq!(response.cookies().count(), usize::from(renewed.is_some()), "{value:?}");
            let sent = response.headers().get(CACHE_CONTROL).map(|value| value.to_str().unwrap());
            assert_eq!(sent, renewed.or(value), "{value:?}");
        }
        for name in ["cdn-cache-control", "Acme-CDN-Cache-Control", "surrogate-control"] {
            let mut response = HttpResponse::Ok();
            let response = response.insert_header((CACHE_CONTROL, "private")).insert_header((name, "max-age=60"));
            let mut response = response.finish();
            let renewal = Some(Cookie::new("svc_auth", "x"));
            WorkerSession { handle: HeaderValue::from_static("x"), renewal }.renew(&mut response);
            assert_eq!(response.cookies().count(), 0, "{name}");
        }
        // Without a renewal, the response stays as it is.
        let mut response = HttpResponse::Ok().finish();
        WorkerSession { handle: HeaderValue::from_static("x"), renewal: None }.renew(&mut response);
        assert!(!response.headers().contains_key(CACHE_CONTROL));
    }
}

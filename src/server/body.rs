//! The body of a request: read within its limits, and parsed.

use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, ORIGIN};

use super::error::{ApiError, Result};
use super::fields::Fields;
use super::state::App;

impl FromRequest<Arc<App>> for Fields {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Fields> {
        check_media_type(request.headers())?;
        let limit = app.options.limits.body;
        let announced =
            request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        if announced.is_some_and(|length: u64| length > limit as u64) {
            return Err(ApiError::too_large(limit));
        }
        let body = tokio::time::timeout(app.options.timeout, to_bytes(request.into_body(), limit));
        let bytes = match body.await {
            Err(_) => return Err(ApiError::timeout()),
            Ok(Err(error)) if is_too_large(&error) => return Err(ApiError::too_large(limit)),
            Ok(Err(error)) => return Err(ApiError::invalid(format!("the body cannot be read: {error}"))),
            Ok(Ok(bytes)) => bytes,
        };
        Fields::parse(&bytes)
    }
}

/// Browsers send the forms of foreign pages without asking first, but never as JSON. Programs, which send no `Origin`, may
/// leave the type out, as many examples for curl do.
fn check_media_type(headers: &HeaderMap) -> Result<()> {
    if !headers.contains_key(ORIGIN) {
        return Ok(());
    }
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") { Ok(()) } else { Err(ApiError::media_type()) }
}

fn is_too_large(error: &axum::Error) -> bool {
    use std::error::Error;
    error.source().is_some_and(|source| source.to_string().contains("length limit"))
}

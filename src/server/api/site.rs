//! The page's files, and the document that describes the routes.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};

use super::super::error::ApiError;
use super::super::page;
use super::super::state::App;

/// A file of the page, or the error of an unknown route.
pub async fn file(State(app): State<Arc<App>>, request: Request) -> Response {
    let path = request.uri().path().trim_start_matches('/');
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    let found = page::asset(path).filter(|_| app.options.endpoints.page && reads);
    let Some((content_type, bytes)) = found else {
        return ApiError::not_found("File Not Found").into_response();
    };
    let etag = page::etag(bytes);
    let known = request.headers().get(IF_NONE_MATCH).is_some_and(|known| known == etag.as_str());
    let headers = [
        (CONTENT_TYPE, content_type.to_owned()),
        (CACHE_CONTROL, page::CACHE_CONTROL.to_owned()),
        (CONTENT_SECURITY_POLICY, page::CONTENT_SECURITY_POLICY.to_owned()),
        (ETAG, etag),
    ];
    if known { (StatusCode::NOT_MODIFIED, headers).into_response() } else { (headers, bytes).into_response() }
}

/// The OpenAPI document.
pub async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], include_str!("../openapi.json")).into_response()
}

//! What happens to every request and response, whatever the route: admission, request ids, error shapes, the access log.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::auth::{self, Origin};
use super::error::{ApiError, Result, Shape};
use super::log::Entry;
use super::state::App;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// What is logged and counted for a client that was gone before the response.
const CLIENT_GONE: u16 = 499;

/// The outermost layer.
pub async fn outer(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let record = Record::new(&app, &request);
    let path = request.uri().path();
    let shape = Shape::of_path(path.strip_prefix(app.options.prefix.as_str()).unwrap_or(path));
    let origin = request.headers().get(ORIGIN).cloned();
    let admitted = admit(&app, &request);
    let response = match &admitted {
        Err(error) => error.clone().into_response(),
        Ok(_) if is_preflight(&request) => preflight(request.headers()),
        Ok(_) => next.run(request).await,
    };
    let mut response = match response.extensions().get::<ApiError>().filter(|_| shape != Shape::OpenAi) {
        Some(error) => error.response(shape),
        None => response,
    };
    let headers = response.headers_mut();
    if admitted == Ok(Origin::Foreign) {
        let any = app.options.cors_origins.iter().any(|origin| origin == "*");
        let origin = origin.filter(|_| !any).unwrap_or(HeaderValue::from_static("*"));
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    if let Ok(id) = HeaderValue::from_str(&record.id) {
        headers.insert(REQUEST_ID, id);
    }
    record.follow(response)
}

/// Checks where a request comes from, and whether the server still takes any.
fn admit(app: &App, request: &Request) -> Result<Origin> {
    auth::check_host(request.headers(), request.uri(), &app.options.allowed_hosts)?;
    let origin = auth::check_origin(request.headers(), &app.options.cors_origins)?;
    if app.is_draining() {
        return Err(ApiError::unavailable("the server is shutting down"));
    }
    Ok(origin)
}

fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to a browser that asks what it may send; browsers send no key with that.
fn preflight(headers: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let allowed = response.headers_mut();
    allowed.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, OPTIONS"));
    if let Some(wanted) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        allowed.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    allowed.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

/// Refuses requests without a key, before their bodies are read.
pub async fn require_key(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match app.options.keys.check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// What is known of a request and its response; logged when it is dropped, at the end of the body or before.
struct Record {
    app: Arc<App>,
    id: String,
    peer: Option<SocketAddr>,
    method: Method,
    path: String,
    start: Instant,
    head: Duration,
    status: u16,
    bytes: u64,
    complete: bool,
}

impl Record {
    fn new(app: &Arc<App>, request: &Request) -> Record {
        let given = request.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
        let is_sound = |id: &&str| (1..=128).contains(&id.len()) && id.bytes().all(|c| c.is_ascii_graphic());
        Record {
            id: given.filter(is_sound).map_or_else(|| app.id("req-"), str::to_owned),
            peer: request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0),
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            start: Instant::now(),
            head: Duration::ZERO,
            status: CLIENT_GONE,
            bytes: 0,
            complete: false,
            app: app.clone(),
        }
    }

    /// Goes along with the response's body.
    fn follow(mut self, response: Response) -> Response {
        self.status = response.status().as_u16();
        self.head = self.start.elapsed();
        response.map(|inner| {
            self.complete = inner.is_end_stream();
            Body::new(Followed { inner, record: self })
        })
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.app.metrics.responded(self.status);
        let entry = Entry {
            id: &self.id,
            peer: self.peer,
            method: self.method.as_str(),
            path: &self.path,
            status: self.status,
            times: (self.head, self.start.elapsed()),
            bytes: self.bytes,
            complete: self.complete,
        };
        entry.write(self.app.options.log);
    }
}

/// A body whose bytes are counted.
struct Followed {
    inner: Body,
    record: Record,
}

impl HttpBody for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.record.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                self.record.complete = self.inner.is_end_stream();
            }
            Poll::Ready(None) => self.record.complete = true,
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.inner.size_hint()
    }
}

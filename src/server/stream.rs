//! Answers as they come: server-sent events, or a JSON object on each line.

use std::convert::Infallible;
use std::fmt::Write;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::error::ApiError;
use super::run::{Answer, Run};

/// How a family writes a stream. What it appends to `out` is sent at once; nothing if it appends nothing.
pub trait Writer: Send + 'static {
    /// What comes before any answer.
    fn begin(&mut self, _out: &mut String) {}

    /// More of an answer.
    fn write(&mut self, answer: Answer, out: &mut String);

    /// All answers are complete.
    fn end(&mut self, out: &mut String);

    /// They break off.
    fn error(&mut self, error: &ApiError, out: &mut String);

    /// The stream's media type.
    fn media_type(&self) -> &'static str {
        "text/event-stream"
    }

    /// What shows that the server is still there when there is nothing to tell.
    fn ping(&self) -> &'static str {
        ":\n\n"
    }
}

/// Appends an event without a name.
pub fn data(value: &Value, out: &mut String) {
    let _ = write!(out, "data: {value}\n\n");
}

/// Appends an event whose name its object carries as `type`.
pub fn named(value: &Value, out: &mut String) {
    let name = value["type"].as_str().unwrap_or("message");
    let _ = write!(out, "event: {name}\ndata: {value}\n\n");
}

/// The end of OpenAI's streams.
pub const DONE: &str = "data: [DONE]\n\n";

/// The response that writes `run` as it goes. The run is cancelled when the client is gone.
pub fn respond(run: Run, writer: impl Writer, ping: Option<Duration>) -> Response {
    let media_type = writer.media_type();
    let stream = Stream { run, writer, ping, state: State::New };
    let body = futures_util::stream::unfold(stream, |mut stream| async move {
        let text = stream.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), stream))
    });
    let headers = [(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(body)).into_response()
}

struct Stream<W> {
    run: Run,
    writer: W,
    ping: Option<Duration>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Running,
    Over,
}

impl<W: Writer> Stream<W> {
    /// The next bytes, never none.
    async fn next(&mut self) -> Option<String> {
        let mut out = String::new();
        if self.state == State::New {
            self.state = State::Running;
            self.writer.begin(&mut out);
        }
        while out.is_empty() && self.state == State::Running {
            let answer = match self.ping {
                None => self.run.next().await,
                Some(ping) => match tokio::time::timeout(ping, self.run.next()).await {
                    Ok(answer) => answer,
                    Err(_) => return Some(self.writer.ping().to_owned()),
                },
            };
            match answer {
                Some(Ok(answer)) => self.writer.write(answer, &mut out),
                Some(Err(error)) => {
                    self.writer.error(&error, &mut out);
                    self.state = State::Over;
                }
                None => {
                    self.writer.end(&mut out);
                    self.state = State::Over;
                }
            }
        }
        Some(out).filter(|out| !out.is_empty())
    }
}

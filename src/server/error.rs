//! What a client is told when a request fails.
//!
//! One type for all families; the shape on the wire depends on the route, see [`Shape`].

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::chat_template::TemplateError;
use crate::engine::EvalError;
use crate::engine::service::SubmitError;
use crate::sampler::SamplerError;

/// What handlers return.
pub type Result<T, E = ApiError> = std::result::Result<T, E>;

/// A request that failed: status, kind and text.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// The HTTP status.
    pub status: StatusCode,
    /// OpenAI's `type`.
    pub kind: &'static str,
    /// What was wrong, for people.
    pub message: String,
    /// The field that was wrong.
    pub param: Option<String>,
    /// Tokens of the prompt and size of the context, where the one does not fit the other.
    pub context: Option<(usize, usize)>,
    /// Seconds after which another try makes sense.
    pub retry_after: Option<u32>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, kind, message: message.into(), param: None, context: None, retry_after: None }
    }

    /// A field that is missing or cannot be taken as it is.
    pub fn field(name: impl Into<String>, problem: impl std::fmt::Display) -> ApiError {
        let name = name.into();
        let error = ApiError::invalid(format!("{name}: {problem}"));
        ApiError { param: Some(name), ..error }
    }

    /// A request that cannot be taken as it is.
    pub fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// A prompt that leaves no room in the context.
    pub fn context(n_prompt: usize, n_ctx: usize) -> ApiError {
        let message = format!(
            "the request has {n_prompt} prompt tokens, and the context of {n_ctx} has no room for an answer to them"
        );
        let error = ApiError::new(StatusCode::BAD_REQUEST, "exceed_context_size_error", message);
        ApiError { context: Some((n_prompt, n_ctx)), ..error }
    }

    /// No key, or a wrong one.
    pub fn unauthorized() -> ApiError {
        ApiError::new(StatusCode::UNAUTHORIZED, "authentication_error", "Invalid API Key")
    }

    /// A `Host` or `Origin` that is not allowed.
    pub fn forbidden(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, "permission_error", message)
    }

    /// No such route, model or object.
    pub fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, "not_found_error", message)
    }

    /// The route exists for another method.
    pub fn method_not_allowed() -> ApiError {
        ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", "the route has no such method")
    }

    /// A body of more than `limit` bytes.
    pub fn too_large(limit: usize) -> ApiError {
        let message = format!("the request's body has more than {limit} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message)
    }

    /// A body that did not come in time.
    pub fn timeout() -> ApiError {
        ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "invalid_request_error",
            "the request's body did not arrive in time",
        )
    }

    /// A browser's request whose body is not declared as JSON.
    pub fn media_type() -> ApiError {
        ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "invalid_request_error",
            "expected Content-Type: application/json",
        )
    }

    /// As many requests wait as may wait.
    pub fn queue_full() -> ApiError {
        let error = ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limit_error",
            "the queue of requests is full; try again later",
        );
        ApiError { retry_after: Some(1), ..error }
    }

    /// Not ready yet, or no longer.
    pub fn unavailable(message: impl Into<String>) -> ApiError {
        let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message);
        ApiError { retry_after: Some(1), ..error }
    }

    /// Something that this server or this model does not do.
    pub fn not_supported(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_IMPLEMENTED, "not_supported_error", message)
    }

    /// A failure that is not the client's.
    pub fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// The object that names the error, in the shape of a family.
    pub fn json(&self, shape: Shape) -> Value {
        match shape {
            Shape::OpenAi => self.openai(),
            Shape::Anthropic => json!({
                "type": "error",
                "error": { "type": self.anthropic_kind(), "message": self.message },
            }),
            Shape::Ollama => json!({ "error": self.message }),
        }
    }

    fn openai(&self) -> Value {
        let mut error = json!({
            "code": self.status.as_u16(),
            "message": self.message,
            "type": self.kind,
            "param": self.param,
        });
        if let Some((n_prompt, n_ctx)) = self.context {
            error["n_prompt_tokens"] = n_prompt.into();
            error["n_ctx"] = n_ctx.into();
        }
        json!({ "error": error })
    }

    fn anthropic_kind(&self) -> &'static str {
        match self.status.as_u16() {
            400 | 405 | 408 | 415 => "invalid_request_error",
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            _ => "api_error",
        }
    }

    /// The response in the shape of a family.
    pub fn response(&self, shape: Shape) -> Response {
        let mut response = (
            self.status,
            [(header::CONTENT_TYPE, "application/json; charset=utf-8")],
            self.json(shape).to_string(),
        )
            .into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// How a family of routes writes an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `{"error": {"code", "message", "type", "param"}}`
    OpenAi,
    /// `{"type": "error", "error": {"type", "message"}}`
    Anthropic,
    /// `{"error": "text"}`
    Ollama,
}

impl Shape {
    /// The shape of a route's family.
    pub fn of_path(path: &str) -> Shape {
        if path.starts_with("/v1/messages") {
            Shape::Anthropic
        } else if path.starts_with("/api/") {
            Shape::Ollama
        } else {
            Shape::OpenAi
        }
    }
}

impl IntoResponse for ApiError {
    /// OpenAI's shape; the error itself goes along, so that a layer that knows the route can reshape it.
    fn into_response(self) -> Response {
        let mut response = self.response(Shape::OpenAi);
        response.extensions_mut().insert(self);
        response
    }
}

impl From<EvalError> for ApiError {
    fn from(error: EvalError) -> ApiError {
        match error {
            EvalError::ContextFull { wanted, n_ctx } => ApiError::context(wanted, n_ctx),
            other => ApiError::invalid(other.to_string()),
        }
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> ApiError {
        match error {
            SubmitError::QueueFull { .. } => ApiError::queue_full(),
            SubmitError::Stopping => ApiError::unavailable("the server is shutting down"),
            SubmitError::Eval(error) => error.into(),
        }
    }
}

impl From<SamplerError> for ApiError {
    fn from(error: SamplerError) -> ApiError {
        ApiError::invalid(error.to_string())
    }
}

impl From<TemplateError> for ApiError {
    fn from(error: TemplateError) -> ApiError {
        ApiError::invalid(error.to_string())
    }
}

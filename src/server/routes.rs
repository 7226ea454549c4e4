//! Which path is answered by what.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

use super::api::{anthropic, chat, completions, embeddings, native, ollama, responses, site, status, text};
use super::error::ApiError;
use super::layers;
use super::state::App;

/// All routes, with everything around them.
pub fn router(app: Arc<App>) -> Router {
    let keyed = openai()
        .merge(own())
        .merge(ollamas())
        .route_layer(from_fn_with_state(app.clone(), layers::require_key));
    let open = Router::new()
        .route("/health", get(status::health))
        .route("/v1/health", get(status::health))
        .fallback(site::file);
    let mut routes = open.merge(keyed);
    if !app.options.prefix.is_empty() {
        let outside = || async { ApiError::not_found("File Not Found") };
        routes = Router::new().nest(&app.options.prefix, routes).fallback(outside);
    }
    routes
        .method_not_allowed_fallback(|| async { ApiError::method_not_allowed() })
        .layer(from_fn_with_state(app.clone(), layers::outer))
        .with_state(app)
}

/// OpenAI's routes exist with `/v1` and without.
fn openai() -> Router<Arc<App>> {
    let both = |router: Router<Arc<App>>, path: &str, method: axum::routing::MethodRouter<Arc<App>>| {
        router.route(&format!("/v1{path}"), method.clone()).route(path, method)
    };
    let mut router = Router::new().route("/v1/completions", post(completions::completions));
    for (path, method) in [
        ("/chat/completions", post(chat::chat)),
        ("/chat/completions/input_tokens", post(chat::input_tokens)),
        ("/responses", post(responses::responses)),
        ("/responses/input_tokens", post(responses::input_tokens)),
        ("/embeddings", post(embeddings::embeddings)),
        ("/models", get(status::models)),
        ("/models/{name}", get(status::model)),
    ] {
        router = both(router, path, method);
    }
    router
}

/// llama-server's own routes.
fn own() -> Router<Arc<App>> {
    Router::new()
        .route("/completion", post(native::completion))
        .route("/completions", post(native::completion))
        .route("/infill", post(native::infill))
        .route("/embedding", post(embeddings::embeddings))
        .route("/v1/messages", post(anthropic::messages))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/tokenize", post(text::tokenize))
        .route("/detokenize", post(text::detokenize))
        .route("/apply-template", post(text::apply_template))
        .route("/inspect", get(status::inspect))
        .route("/openapi.json", get(site::openapi))
        .route("/props", get(status::props))
        .route("/slots", get(status::slots))
        .route("/metrics", get(status::metrics))
}

/// ollama's routes.
fn ollamas() -> Router<Arc<App>> {
    Router::new()
        .route("/api/chat", post(ollama::chat))
        .route("/api/generate", post(ollama::generate))
        .route("/api/embed", post(ollama::embed_texts))
        .route("/api/embeddings", post(ollama::embed_prompt))
        .route("/api/tags", get(ollama::tags))
        .route("/api/ps", get(ollama::ps))
        .route("/api/version", get(ollama::version))
        .route("/api/show", post(ollama::show))
}

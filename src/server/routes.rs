//! Which path is answered by what.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

use super::api::{chat, completions, native, status, text};
use super::error::ApiError;
use super::layers;
use super::state::App;

/// All routes, with everything around them.
pub fn router(app: Arc<App>) -> Router {
    let keyed = openai().merge(own()).route_layer(from_fn_with_state(app.clone(), layers::require_key));
    let open = Router::new().route("/health", get(status::health)).route("/v1/health", get(status::health));
    let mut routes = open.merge(keyed);
    if !app.options.prefix.is_empty() {
        routes = Router::new().nest(&app.options.prefix, routes);
    }
    routes
        .fallback(|| async { ApiError::not_found("File Not Found") })
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
        .route("/tokenize", post(text::tokenize))
        .route("/detokenize", post(text::detokenize))
        .route("/apply-template", post(text::apply_template))
        .route("/props", get(status::props))
        .route("/slots", get(status::slots))
        .route("/metrics", get(status::metrics))
}

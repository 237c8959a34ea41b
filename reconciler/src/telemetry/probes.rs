//! The HTTP endpoints `/livez`, `/readyz`, `/healthz` and `/metrics`.
//!
//! As with the API server, the answer is `ok` when all checks pass, and `?verbose` lists the checks.

use std::sync::Arc;

use axum::Router;
use axum::extract::RawQuery;
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;

use crate::telemetry::metrics::{MEDIA_TYPE, Metrics};
use crate::telemetry::readiness::Readiness;

/// The routes. `/livez` and `/healthz` only show that the program answers.
pub(crate) fn routes(readiness: Readiness, metrics: Arc<Metrics>) -> Router {
    let alive = || async { "ok" };
    let metrics = move || async move { ([(CONTENT_TYPE, MEDIA_TYPE)], metrics.expose()) };
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(alive))
        .route("/healthz", get(alive))
        .route("/readyz", get(|RawQuery(query): RawQuery| async move { ready(&readiness, query.as_deref()) }))
}

fn ready(readiness: &Readiness, query: Option<&str>) -> (StatusCode, String) {
    let is_verbose = |query: &str| query.split('&').any(|word| word.split('=').next() == Some("verbose"));
    let report = readiness.report();
    match report.is_ready {
        true if query.is_some_and(is_verbose) => (StatusCode::OK, report.lines),
        true => (StatusCode::OK, "ok".to_owned()),
        false => (StatusCode::SERVICE_UNAVAILABLE, report.lines),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readyz_is_brief_when_ready_and_lists_failed_checks() {
        let readiness = Readiness::default();
        let check = readiness.check("nodes");
        let failed =
            (StatusCode::SERVICE_UNAVAILABLE, "[-]nodes failed: not yet\nreadyz check failed\n".to_owned());
        assert_eq!(ready(&readiness, None), failed);
        check.pass();
        let verbose = (StatusCode::OK, "[+]nodes ok\nreadyz check passed\n".to_owned());
        assert_eq!(ready(&readiness, Some("verbose")), verbose);
        assert_eq!(ready(&readiness, Some("timeout=1s&verbose=true")), verbose);
        assert_eq!(ready(&readiness, Some("silent")), (StatusCode::OK, "ok".to_owned()));
    }
}

//! Content negotiation: objects, `PartialObjectMetadata` or tables.

use crate::model::status_error::StatusError;

/// The format of objects in a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ResponseFormat {
    /// Whole objects.
    #[default]
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `Table`.
    Table,
}

/// Selects the first supported format of the `Accept` header.
///
/// # Errors
/// 406 if none is supported.
pub(crate) fn form(accept: Option<&str>) -> Result<ResponseFormat, StatusError> {
    let Some(accept) = accept.filter(|accept| !accept.trim().is_empty()) else {
        return Ok(ResponseFormat::Whole);
    };
    accept.split(',').find_map(one).ok_or_else(|| {
        StatusError::new(
            406,
            "NotAcceptable",
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf, application/json;stream=watch, \
             application/vnd.kubernetes.protobuf;stream=watch",
        )
        .with_details(serde_json::json!({}))
    })
}

fn one(range: &str) -> Option<ResponseFormat> {
    let mut parts = range.split(';').map(str::trim);
    if !matches!(parts.next()?, "application/json" | "application/*" | "*/*") {
        return None;
    }
    let parameter = |wanted: &str| {
        let mut rest = range.split(';').map(str::trim);
        rest.find_map(|part| part.strip_prefix(wanted)?.strip_prefix('='))
    };
    match parameter("as") {
        None => Some(ResponseFormat::Whole),
        Some(_) if parameter("v") != Some("v1") || parameter("g") != Some("meta.k8s.io") => None,
        Some("Table") => Some(ResponseFormat::Table),
        Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Some(ResponseFormat::Metadata),
        Some(_) => None,
    }
}

/// Whether aggregated discovery is requested. Only its released version is supported.
pub(crate) fn wants_aggregated(accept: Option<&str>) -> bool {
    accept.unwrap_or_default().split(',').any(|range| {
        let has = |wanted| range.split(';').any(|part| part.trim() == wanted);
        has("application/json") && has("as=APIGroupDiscoveryList") && has("v=v2")
    })
}

/// The media types of `OpenAPI` in protobuf: the one of the response, and the older one that kubectl requests.
const OPENAPI_TYPES: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
];

/// The media type of an `OpenAPI` response in protobuf, if that is requested.
pub(crate) fn openapi_in_protobuf(accept: Option<&str>) -> Option<&'static str> {
    let first = accept.unwrap_or_default().split([',', ';']).next().unwrap_or_default().trim();
    OPENAPI_TYPES.contains(&first).then_some(OPENAPI_TYPES[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_can_be_had_is_chosen() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        for (accept, expected) in [
            (None, Some(ResponseFormat::Whole)),
            (Some("*/*"), Some(ResponseFormat::Whole)),
            (Some("application/vnd.kubernetes.protobuf,application/json"), Some(ResponseFormat::Whole)),
            (Some(table), Some(ResponseFormat::Table)),
            (
                Some("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"),
                Some(ResponseFormat::Whole),
            ),
            (
                Some("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"),
                Some(ResponseFormat::Metadata),
            ),
            (Some("text/html"), None),
        ] {
            assert_eq!(form(accept).ok(), expected, "{accept:?}");
        }
    }

    #[test]
    fn only_the_released_aggregated_discovery_is_spoken() {
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        assert!(wants_aggregated(Some(&format!("{v2},application/json"))));
        assert!(!wants_aggregated(Some(
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
        )));
        assert!(!wants_aggregated(Some("application/json")));
    }
}

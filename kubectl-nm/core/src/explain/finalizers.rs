//! The words for finalizers that keep an object, for one and for several.

/// `a finalizer keeps it: a/b`.
pub(super) fn keep(object: &str, finalizers: &[String]) -> String {
    let keep = if finalizers.len() == 1 { "a finalizer keeps" } else { "finalizers keep" };
    format!("{keep} {object}: {}", finalizers.join(", "))
}

/// What to do about so many finalizers. A count of 0 means that they are not known.
pub(super) fn advice(count: usize) -> &'static str {
    if count == 1 {
        "The owner of its finalizer must remove it; remove it yourself only if its owner no longer exists"
    } else {
        "The owners of its finalizers must remove them; remove only those whose owners no longer exist"
    }
}

//! Failures that are logged once.

/// The last failure of something that is retried, so that each failure is logged once until it changes.
#[derive(Debug, Default)]
pub(crate) struct LastFailure(String);

impl LastFailure {
    /// Whether this failure differs from the last one.
    pub(crate) fn is_new(&mut self, failure: &str) -> bool {
        let is_new = self.0 != failure;
        failure.clone_into(&mut self.0);
        is_new
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

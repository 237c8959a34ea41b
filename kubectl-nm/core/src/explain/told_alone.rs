//! A pod that is explained by itself, for whoever asks about this one: otherwise pods that are blocked alike are one cause, which
//! names the first of them, and their commands.

use nm_shared::PodReference;

/// The pod that is not explained together with others; none if all pods that are blocked alike are one cause.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ToldAlone<'a>(pub(super) Option<&'a PodReference>);

impl ToldAlone<'_> {
    pub(super) fn is(self, pod: &PodReference) -> bool {
        self.0 == Some(pod)
    }

    /// The pods that are explained together, and the one that is not. No part is empty.
    pub(super) fn split<T>(self, pods: Vec<T>, reference: impl Fn(&T) -> PodReference) -> Vec<Vec<T>> {
        let (alone, others): (Vec<T>, Vec<T>) = pods.into_iter().partition(|pod| self.is(&reference(pod)));
        [others, alone].into_iter().filter(|part| !part.is_empty()).collect()
    }
}

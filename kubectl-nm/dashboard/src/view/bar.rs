//! Bars in segments, one for the pods in each state, in eighths of a column.

use nm_shared::{PodCounts, PodState};

/// The parts of a column.
pub(super) const EIGHTHS: usize = 8;

/// A column of a bar: the state on its left with how many eighths it has, and the one on its right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BarCell {
    pub(super) left: PodState,
    pub(super) eighths: usize,
    pub(super) right: PodState,
}

/// The columns of a bar of that width. Blocked pods have half a column at least.
pub(super) fn cells(counts: &PodCounts, width: usize) -> Vec<BarCell> {
    let parts = shares(counts, width * EIGHTHS, EIGHTHS / 2);
    let mut units = parts.iter().flat_map(|(state, units)| std::iter::repeat_n(*state, *units));
    let cell = |_| {
        let eighths: Vec<PodState> = units.by_ref().take(EIGHTHS).collect();
        let left = eighths.first().copied().unwrap_or(PodState::Waiting);
        let of_left = eighths.iter().take_while(|state| **state == left).count();
        let right = eighths.last().copied().unwrap_or(PodState::Waiting);
        BarCell { left, eighths: of_left, right }
    };
    (0..width).map(cell).collect()
}

/// The state of each column of a bar of that width, where a column has one. Every state that pods are in has a column, if
/// there are enough.
pub(super) fn whole_cells(counts: &PodCounts, width: usize) -> Vec<PodState> {
    let parts = shares(counts, width, 1);
    parts.iter().flat_map(|(state, units)| std::iter::repeat_n(*state, *units)).collect()
}

/// The states from left to right: what is done, what is under way, and what has not begun.
fn order() -> impl Iterator<Item = PodState> {
    let not_begun = [PodState::Blocked, PodState::Waiting];
    let is_under_way = move |state: &PodState| state.is_pending() && !not_begun.contains(state);
    std::iter::once(PodState::Gone).chain(PodState::ALL.into_iter().filter(is_under_way)).chain(not_begun)
}

/// How many of so many units each state has; blocked pods have so many at least.
fn shares(counts: &PodCounts, units: usize, for_blocked: usize) -> Vec<(PodState, usize)> {
    let count = |state| usize::try_from(counts.of(state)).unwrap_or_default();
    let total: usize = order().map(count).sum();
    if total == 0 {
        return vec![(PodState::Waiting, units)];
    }
    let share = |state| {
        let share = count(state) * units / total;
        let least = match state {
            _ if count(state) == 0 => 0,
            PodState::Blocked => for_blocked,
            _ => 1,
        };
        (state, share.max(least))
    };
    let mut shares: Vec<(PodState, usize)> = order().map(share).collect();
    let used: usize = shares.iter().map(|(_, share)| share).sum();
    // The largest gives what the others need, and gets what is left.
    if let Some((_, largest)) = shares.iter_mut().max_by_key(|(_, share)| *share) {
        *largest = (*largest + units).saturating_sub(used);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(gone: i32, terminating: i32, blocked: i32, waiting: i32) -> PodCounts {
        PodCounts { gone, terminating, blocked, waiting, ..PodCounts::default() }
    }

    /// The bar in letters: a column with one state has that state's letter, others both with the eighths of the left one.
    fn drawn(counts: &PodCounts, width: usize) -> String {
        let letter = |state: PodState| state.word()[..1].to_owned();
        let cell = |cell: BarCell| match cell.eighths {
            EIGHTHS => letter(cell.left),
            eighths => format!("({}{eighths}{})", letter(cell.left), letter(cell.right)),
        };
        cells(counts, width).into_iter().map(cell).collect()
    }

    #[test]
    fn a_bar_has_a_segment_for_each_state_in_eighths() {
        for (counts, width, expected) in [
            (of(0, 0, 0, 0), 4, "WWWW"),
            (of(4, 0, 0, 0), 4, "GGGG"),
            (of(1, 0, 0, 1), 4, "GGWW"),
            (of(1, 1, 1, 1), 4, "GTBW"),
            (of(3, 0, 0, 5), 1, "(G3W)"),
            (of(1, 0, 0, 999), 4, "(G1W)WWW"),
            (of(999, 0, 0, 1), 4, "GGG(G7W)"),
            (of(999, 0, 1, 0), 4, "GGG(G4B)"),
        ] {
            assert_eq!(drawn(&counts, width), expected, "{counts:?}");
        }
    }

    #[test]
    fn every_bar_is_as_wide_as_asked_and_hides_no_blocked_pod() {
        for width in 0..30 {
            for blocked in 0..5 {
                let counts = PodCounts { migrating: 3, surging: 1, evicting: 40, ..of(7, 900, blocked, 13) };
                assert_eq!(cells(&counts, width).len(), width);
                let whole = whole_cells(&counts, width);
                assert!(width < 7 || whole.len() == width, "{width}: {whole:?}");
                let is_shown = whole.contains(&PodState::Blocked);
                assert!(width < 7 || is_shown == (blocked > 0), "{width} {blocked}: {whole:?}");
            }
        }
    }
}

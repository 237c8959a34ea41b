//! Rows that stay sorted and filtered while they change, and the selected row.
//!
//! A change of one row costs a binary search instead of a sort, so that a node whose 10,000 pods end at once costs no
//! more than its messages. Another order or filter starts from the order of the names, so that names, of which a comparison is
//! slow, are compared only when a row is new.
//!
//! Until the user chooses a row, the first one is selected, whichever it is: with the default order it is the worst, and
//! it stays in sight. A row is chosen by moving to it, and by what is done with it. From then on, the selection moves
//! with its row, even if the order or the filter changes, until the row is gone.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;

use crate::model::lists::filter::{Filter, Searchable};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// What needs attention first.
    #[default]
    Risk,
    Name,
    /// By pool and zone.
    Pool,
    /// Least progress first.
    Progress,
    /// Oldest first.
    Age,
}

impl Sort {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Risk => "risk",
            Self::Name => "name",
            Self::Pool => "pool",
            Self::Progress => "progress",
            Self::Age => "age",
        }
    }

    /// The one that follows in a view that has these.
    pub(crate) fn next(self, of: &[Self]) -> Self {
        let at = of.iter().position(|sort| *sort == self).map_or(0, |at| at + 1);
        of.get(at).or(of.first()).copied().unwrap_or_default()
    }
}

pub(crate) trait Row: Searchable {
    /// The orders in which the rows make sense.
    const SORTS: &'static [Sort];

    fn key(&self) -> &str;
    /// What decides on the order of two rows before their names do. It is cheap, because thousands of rows are compared.
    fn lead(&self, other: &Self, by: Sort) -> Ordering;
    /// The order of two rows by their names; equal only for the same row.
    fn by_name(&self, other: &Self) -> Ordering;
    fn is_blocked(&self) -> bool;
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Arrangement {
    pub(crate) sort: Sort,
    pub(crate) reversed: bool,
    pub(crate) filter: Filter,
    pub(crate) blocked_only: bool,
}

/// The rows of any view, for keys and the header.
pub(crate) trait Rows {
    /// The number of rows, visible or not.
    fn total(&self) -> usize;
    fn len(&self) -> usize;
    fn at(&self) -> usize;
    /// The visible range on a screen of that height.
    fn window(&self, height: usize) -> Range<usize>;
    /// Scrolls so that the selection is on a screen of that height.
    fn fit(&mut self, height: usize);
    fn arrangement(&self) -> &Arrangement;
    fn arrange_by(&mut self, arrangement: Arrangement);
    fn sorts(&self) -> &'static [Sort];
    /// Selects the visible row at that index, or the last one.
    fn select(&mut self, index: usize);
    /// Selects the first row, whichever that will be.
    fn go_to_top(&mut self);
    /// Ties the selection to the row that is selected now.
    fn choose(&mut self);
}

#[derive(Debug, Clone)]
pub(crate) struct Listing<R> {
    /// Slots keep their index while a row exists; free slots are reused.
    rows: Vec<Option<R>>,
    free: Vec<usize>,
    places: HashMap<String, usize>,
    /// The slots of all rows, by name: with it, no other order compares many names.
    named: Vec<usize>,
    /// The slots of the visible rows, in order.
    shown: Vec<usize>,
    arrangement: Arrangement,
    /// The key of the selected row; none selects the first row.
    selected: Option<String>,
    at: usize,
    top: usize,
}

impl<R> Default for Listing<R> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            free: Vec::new(),
            places: HashMap::new(),
            named: Vec::new(),
            shown: Vec::new(),
            arrangement: Arrangement::default(),
            selected: None,
            at: 0,
            top: 0,
        }
    }
}

impl<R: Row> Rows for Listing<R> {
    fn total(&self) -> usize {
        self.places.len()
    }

    fn len(&self) -> usize {
        self.shown.len()
    }

    fn at(&self) -> usize {
        self.at
    }

    fn window(&self, height: usize) -> Range<usize> {
        let highest = (self.at + 1).saturating_sub(height);
        let lowest = self.shown.len().saturating_sub(height);
        let top = self.top.max(highest).min(self.at.max(highest)).min(lowest.max(highest));
        top..(top + height).min(self.shown.len())
    }

    fn fit(&mut self, height: usize) {
        self.top = self.window(height).start;
    }

    fn arrangement(&self) -> &Arrangement {
        &self.arrangement
    }

    fn arrange_by(&mut self, arrangement: Arrangement) {
        self.arrangement = arrangement;
        self.arrange();
    }

    fn sorts(&self) -> &'static [Sort] {
        R::SORTS
    }

    fn select(&mut self, index: usize) {
        self.select_at(index);
    }

    fn go_to_top(&mut self) {
        (self.at, self.selected) = (0, None);
    }

    fn choose(&mut self) {
        self.select_at(self.at);
    }
}

impl<R: Row> Listing<R> {
    pub(crate) fn all(&self) -> impl Iterator<Item = &R> {
        self.rows.iter().flatten()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&R> {
        self.rows[*self.places.get(key)?].as_ref()
    }

    /// The rows of a name, by how it compares with theirs: the order is that of [`Row::by_name`].
    pub(crate) fn named(&self, order: impl Fn(&R) -> Ordering) -> impl Iterator<Item = &R> {
        let row_of = |place: &usize| self.rows[*place].as_ref();
        let begin = self.named.partition_point(|place| row_of(place).is_some_and(|row| order(row).is_lt()));
        self.named[begin..].iter().filter_map(row_of).take_while(move |row| order(row).is_eq())
    }

    pub(crate) fn nth(&self, index: usize) -> Option<&R> {
        self.rows[*self.shown.get(index)?].as_ref()
    }

    pub(crate) fn selected(&self) -> Option<&R> {
        self.nth(self.at)
    }

    pub(crate) fn upsert(&mut self, row: R) {
        if let Some(place) = self.places.get(row.key()).copied() {
            self.hide(place);
            let is_renamed = self.rows[place].as_ref().is_none_or(|known| known.by_name(&row).is_ne());
            if is_renamed {
                self.unname(place);
            }
            self.rows[place] = Some(row);
            if is_renamed {
                self.name(place);
            }
            self.show(place);
        } else {
            let key = row.key().to_owned();
            let place = self.free.pop().unwrap_or_else(|| {
                self.rows.push(None);
                self.rows.len() - 1
            });
            self.rows[place] = Some(row);
            self.places.insert(key, place);
            self.name(place);
            self.show(place);
        }
        self.restore_selection();
    }

    pub(crate) fn remove(&mut self, key: &str) {
        if let Some(place) = self.places.remove(key) {
            self.hide(place);
            self.unname(place);
            self.rows[place] = None;
            self.free.push(place);
            self.restore_selection();
        }
    }

    /// Replaces all rows; selection, sorting and filter stay.
    pub(crate) fn replace(&mut self, rows: impl IntoIterator<Item = R>) {
        self.free.clear();
        let mut rows = rows.into_iter().collect::<Vec<R>>();
        rows.sort_by(R::by_name);
        self.named = (0..rows.len()).collect();
        self.places = rows.iter().enumerate().map(|(place, row)| (row.key().to_owned(), place)).collect();
        self.rows = rows.into_iter().map(Some).collect();
        self.arrange();
    }

    /// Takes over the arrangement, the selection and the scrolling of a listing of the same rows at another time.
    pub(crate) fn look_like(&mut self, seen: &Self) {
        self.arrangement = seen.arrangement.clone();
        self.selected.clone_from(&seen.selected);
        (self.at, self.top) = (seen.at, seen.top);
        self.arrange();
    }

    /// Moves the selection from one key to another, if the first is selected.
    pub(crate) fn move_selection(&mut self, key: &str, by: &str) {
        if self.selected.as_deref() == Some(key) {
            self.choose_row(by);
        }
    }

    /// Ties the selection to the row with this key, if it is there.
    pub(crate) fn choose_row(&mut self, key: &str) {
        self.selected = Some(key.to_owned());
        self.restore_selection();
    }

    fn select_at(&mut self, index: usize) {
        self.at = index.min(self.shown.len().saturating_sub(1));
        self.selected = self.selected().map(|row| row.key().to_owned());
    }

    /// The selected row, if the user chose it.
    pub(crate) fn chosen(&self) -> Option<&R> {
        self.selected().filter(|_| self.selected.is_some())
    }

    fn passes(&self, row: &R) -> bool {
        let Arrangement { filter, blocked_only, .. } = &self.arrangement;
        (!blocked_only || row.is_blocked()) && (filter.is_empty() || filter.matches(row))
    }

    fn compare(&self, one: usize, other: usize) -> Ordering {
        let (Some(one), Some(other)) = (&self.rows[one], &self.rows[other]) else { return Ordering::Equal };
        let order = one.lead(other, self.arrangement.sort).then_with(|| one.by_name(other));
        if self.arrangement.reversed { order.reverse() } else { order }
    }

    fn index_of(&self, place: usize) -> Result<usize, usize> {
        self.shown.binary_search_by(|other| self.compare(*other, place))
    }

    fn index_by_name(&self, place: usize) -> Result<usize, usize> {
        let Some(row) = &self.rows[place] else { return Err(0) };
        let by_name =
            |other: &usize| self.rows[*other].as_ref().map_or(Ordering::Less, |other| other.by_name(row));
        self.named.binary_search_by(by_name)
    }

    fn name(&mut self, place: usize) {
        if let Err(index) = self.index_by_name(place) {
            self.named.insert(index, place);
        }
    }

    fn unname(&mut self, place: usize) {
        if let Ok(index) = self.index_by_name(place) {
            self.named.remove(index);
        }
    }

    fn hide(&mut self, place: usize) {
        if let Ok(index) = self.index_of(place)
            && self.shown[index] == place
        {
            self.shown.remove(index);
        }
    }

    fn show(&mut self, place: usize) {
        if self.rows[place].as_ref().is_some_and(|row| self.passes(row))
            && let Err(index) = self.index_of(place)
        {
            self.shown.insert(index, place);
        }
    }

    fn arrange(&mut self) {
        let row_of = |place: &usize| self.rows[*place].as_ref();
        let mut shown: Vec<usize> = self
            .named
            .iter()
            .copied()
            .filter(|place| row_of(place).is_some_and(|row| self.passes(row)))
            .collect();
        // Rows that are equal so far stay in the order of their names.
        let sort = self.arrangement.sort;
        shown.sort_by(|one, other| match (row_of(one), row_of(other)) {
            (Some(one), Some(other)) => one.lead(other, sort),
            _ => Ordering::Equal,
        });
        if self.arrangement.reversed {
            shown.reverse();
        }
        self.shown = shown;
        self.restore_selection();
    }

    /// Finds the selected row again. If it is gone, nobody has chosen the row in its place, which is that of another object.
    fn restore_selection(&mut self) {
        let place = self.selected.as_ref().and_then(|selected| self.places.get(selected));
        match place.and_then(|place| self.index_of(*place).ok()) {
            Some(index) => self.at = index,
            None => self.go_to_top(),
        }
    }
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;

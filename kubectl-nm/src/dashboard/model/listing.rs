//! Rows that stay sorted and filtered while they change, and the one that is selected.
//!
//! A change of one row costs a binary search and not a new sort, so that a node of ten thousand pods that all end at
//! once is no more work than its messages. The selection is a row, not a place: it moves with its row, also before
//! anybody has moved it, because what is on the screen is what keys are meant for. Until then, who asks for another order
//! or other rows sees the first of them selected.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;

use crate::dashboard::model::filter::{Fields, Filter};

/// What rows are sorted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// What needs somebody first.
    #[default]
    Risk,
    /// The name.
    Name,
    /// How far it is; the least first.
    Progress,
    /// Since when; the longest first.
    Age,
}

impl Sort {
    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Risk => "risk",
            Self::Name => "name",
            Self::Progress => "progress",
            Self::Age => "age",
        }
    }

    /// The one after it.
    pub(crate) fn next(self) -> Self {
        match self {
            Self::Risk => Self::Name,
            Self::Name => Self::Progress,
            Self::Progress => Self::Age,
            Self::Age => Self::Risk,
        }
    }
}

/// A row of a listing.
pub(crate) trait Row {
    /// What tells it from all others.
    fn key(&self) -> &str;
    /// How it stands to another; equal only to itself.
    fn order(&self, other: &Self, by: Sort) -> Ordering;
    /// What a filter sees of it.
    fn fields(&self) -> Fields<'_>;
    /// Whether something refuses to go on there.
    fn is_blocked(&self) -> bool;
}

/// Rows, sorted and filtered.
#[derive(Debug)]
pub(crate) struct Listing<R> {
    /// Places stay what they are; those of removed rows are used again.
    rows: Vec<Option<R>>,
    free: Vec<usize>,
    places: HashMap<String, usize>,
    /// The places of the rows that pass, in order.
    shown: Vec<usize>,
    sort: Sort,
    reversed: bool,
    filter: Filter,
    blocked_only: bool,
    /// The selected row; none is the first, whichever that is.
    selected: Option<String>,
    /// Whether somebody has moved the selection.
    moved: bool,
    /// Where the selection is in `shown`.
    at: usize,
    /// The first row on the screen.
    top: usize,
}

impl<R> Default for Listing<R> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            free: Vec::new(),
            places: HashMap::new(),
            shown: Vec::new(),
            sort: Sort::default(),
            reversed: false,
            filter: Filter::default(),
            blocked_only: false,
            selected: None,
            moved: false,
            at: 0,
            top: 0,
        }
    }
}

impl<R: Row> Listing<R> {
    /// All rows, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &R> {
        self.rows.iter().flatten()
    }

    /// How many rows there are, shown or not.
    pub(crate) fn total(&self) -> usize {
        self.places.len()
    }

    /// How many rows are shown.
    pub(crate) fn len(&self) -> usize {
        self.shown.len()
    }

    /// The row of that key.
    pub(crate) fn get(&self, key: &str) -> Option<&R> {
        self.rows[*self.places.get(key)?].as_ref()
    }

    /// The shown row at that index.
    pub(crate) fn nth(&self, index: usize) -> Option<&R> {
        self.rows[*self.shown.get(index)?].as_ref()
    }

    /// The selected row.
    pub(crate) fn selected(&self) -> Option<&R> {
        self.nth(self.at)
    }

    /// Where the selection is.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// What it is sorted by, and whether the other way round.
    pub(crate) fn sorting(&self) -> (Sort, bool) {
        (self.sort, self.reversed)
    }

    /// The filter.
    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Whether only blocked rows are shown.
    pub(crate) fn blocked_only(&self) -> bool {
        self.blocked_only
    }

    /// The rows on a screen of that height.
    pub(crate) fn window(&self, height: usize) -> Range<usize> {
        let highest = (self.at + 1).saturating_sub(height);
        let lowest = self.shown.len().saturating_sub(height);
        let top = self.top.max(highest).min(self.at.max(highest)).min(lowest.max(highest));
        top..(top + height).min(self.shown.len())
    }

    /// Keeps the selection on a screen of that height.
    pub(crate) fn fit(&mut self, height: usize) {
        self.top = self.window(height).start;
    }

    /// Adds a row or replaces the one of its key.
    pub(crate) fn put(&mut self, row: R) {
        if let Some(place) = self.places.get(row.key()).copied() {
            self.hide(place);
            self.rows[place] = Some(row);
            self.show(place);
        } else {
            let key = row.key().to_owned();
            let place = self.free.pop().unwrap_or_else(|| {
                self.rows.push(None);
                self.rows.len() - 1
            });
            self.rows[place] = Some(row);
            self.places.insert(key, place);
            self.show(place);
        }
        self.settle();
    }

    /// Takes a row away.
    pub(crate) fn remove(&mut self, key: &str) {
        if let Some(place) = self.places.remove(key) {
            self.hide(place);
            self.rows[place] = None;
            self.free.push(place);
            self.settle();
        }
    }

    /// Replaces all rows; the selection, sorting and filter stay.
    pub(crate) fn replace(&mut self, rows: impl IntoIterator<Item = R>) {
        self.rows.clear();
        self.free.clear();
        self.places.clear();
        // In order from the beginning: then they are next to each other in memory as on the screen, and another order
        // is mostly this one again, which makes sorting cheap.
        let (sort, mut rows) = (self.sort, rows.into_iter().collect::<Vec<R>>());
        rows.sort_by(|one, other| one.order(other, sort));
        for row in rows {
            self.places.insert(row.key().to_owned(), self.rows.len());
            self.rows.push(Some(row));
        }
        self.arrange();
    }

    /// Sorts by something else.
    pub(crate) fn sort_by(&mut self, sort: Sort) {
        self.sort = sort;
        self.unpin();
        self.arrange();
    }

    /// Turns the order round.
    pub(crate) fn reverse(&mut self) {
        self.reversed = !self.reversed;
        self.unpin();
        self.shown.reverse();
        self.settle();
    }

    /// Shows what passes this filter.
    pub(crate) fn filter_by(&mut self, filter: Filter) {
        self.filter = filter;
        self.unpin();
        self.arrange();
    }

    /// Shows only blocked rows, or all again.
    pub(crate) fn toggle_blocked_only(&mut self) {
        self.blocked_only = !self.blocked_only;
        self.unpin();
        self.arrange();
    }

    /// Selects the shown row at that index, or the last.
    pub(crate) fn select(&mut self, index: usize) {
        self.moved = true;
        self.hold(index);
    }

    /// Has the selection stay with the row that it is on, as is due once somebody has seen it there.
    pub(crate) fn pin(&mut self) {
        if self.selected.is_none() {
            self.hold(self.at);
        }
    }

    /// Has the selection go on with the row of that key instead of the one of the other, if that is selected.
    pub(crate) fn succeed(&mut self, key: &str, by: &str) {
        if self.selected.as_deref() == Some(key) {
            self.selected = Some(by.to_owned());
            self.settle();
        }
    }

    /// Moves the selection by so many rows.
    pub(crate) fn step(&mut self, by: isize) {
        self.select(self.at.saturating_add_signed(by));
    }

    /// Selects the first row, whichever that is.
    pub(crate) fn go_to_top(&mut self) {
        (self.at, self.selected, self.moved) = (0, None, false);
    }

    fn hold(&mut self, index: usize) {
        self.at = index.min(self.shown.len().saturating_sub(1));
        self.selected = self.selected().map(|row| row.key().to_owned());
    }

    /// The selected row, if the selection stays with it.
    pub(crate) fn pinned(&self) -> Option<&R> {
        self.selected().filter(|_| self.selected.is_some())
    }

    /// Lets the selection go to the first row, unless somebody has moved it.
    pub(crate) fn unpin(&mut self) {
        if !self.moved {
            self.selected = None;
        }
    }

    fn passes(&self, row: &R) -> bool {
        (!self.blocked_only || row.is_blocked())
            && (self.filter.is_empty() || self.filter.passes(&row.fields()))
    }

    fn compare(&self, one: usize, other: usize) -> Ordering {
        let (Some(one), Some(other)) = (&self.rows[one], &self.rows[other]) else { return Ordering::Equal };
        let order = one.order(other, self.sort);
        if self.reversed { order.reverse() } else { order }
    }

    fn index_of(&self, place: usize) -> Result<usize, usize> {
        self.shown.binary_search_by(|other| self.compare(*other, place))
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
        let passing = (0..self.rows.len())
            .filter(|place| self.rows[*place].as_ref().is_some_and(|row| self.passes(row)));
        let mut shown: Vec<usize> = passing.collect();
        shown.sort_by(|one, other| self.compare(*one, *other));
        self.shown = shown;
        self.settle();
    }

    /// Finds the selected row again; if it is gone, the one in its place is selected.
    fn settle(&mut self) {
        let Some(selected) = &self.selected else {
            self.at = 0;
            return;
        };
        match self.places.get(selected).and_then(|place| self.index_of(*place).ok()) {
            Some(index) => self.at = index,
            None => self.hold(self.at),
        }
    }
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;

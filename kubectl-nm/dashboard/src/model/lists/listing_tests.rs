//! Listings whose rows change.

use std::cell::Cell;

use super::*;
use crate::model::lists::filter::FilterField;

#[derive(Debug, Clone, Default, PartialEq)]
struct TestRow(String, u32);

thread_local! {
    static NAMES_COMPARED: Cell<usize> = const { Cell::new(0) };
}

impl Searchable for TestRow {
    fn any(&self, field: FilterField, is_match: &dyn Fn(&str) -> bool) -> bool {
        field == FilterField::Text && is_match(&self.0)
    }
}

impl Row for TestRow {
    const SORTS: &'static [Sort] = &[Sort::Risk, Sort::Name];

    fn key(&self) -> &str {
        &self.0
    }

    fn lead(&self, other: &Self, by: Sort) -> Ordering {
        if by == Sort::Name { Ordering::Equal } else { self.1.cmp(&other.1) }
    }

    fn by_name(&self, other: &Self) -> Ordering {
        NAMES_COMPARED.set(NAMES_COMPARED.get() + 1);
        self.0.cmp(&other.0)
    }

    fn is_blocked(&self) -> bool {
        self.1 == 0
    }
}

fn entry(name: &str, risk: u32) -> TestRow {
    TestRow(name.to_owned(), risk)
}

fn listing(entries: &[(&str, u32)]) -> Listing<TestRow> {
    let mut listing = Listing::default();
    listing.replace(entries.iter().map(|(name, risk)| entry(name, *risk)));
    listing
}

fn rearrange(listing: &mut Listing<TestRow>, change: impl FnOnce(&mut Arrangement)) {
    let mut arrangement = listing.arrangement().clone();
    change(&mut arrangement);
    listing.arrange_by(arrangement);
}

fn step(listing: &mut Listing<TestRow>, by: isize) {
    listing.select(listing.at().saturating_add_signed(by));
}

fn names(listing: &Listing<TestRow>) -> String {
    (0..listing.len()).filter_map(|index| listing.nth(index)).map(|entry| entry.0.as_str()).collect()
}

fn selected(listing: &Listing<TestRow>) -> &str {
    listing.selected().map_or("", |entry| &entry.0)
}

#[test]
fn rows_stay_sorted_when_rows_are_added_changed_and_removed() {
    let mut listing = listing(&[("c", 1), ("a", 3), ("b", 2)]);
    assert_eq!(names(&listing), "cba");
    listing.upsert(entry("d", 2));
    assert_eq!(names(&listing), "cbda");
    listing.upsert(entry("a", 0));
    assert_eq!(names(&listing), "acbd");
    listing.remove("c");
    listing.remove("nobody");
    listing.upsert(entry("e", 9));
    assert_eq!(names(&listing), "abde");
    rearrange(&mut listing, |view| view.reversed = !view.reversed);
    listing.upsert(entry("f", 10));
    assert_eq!(names(&listing), "fedba");
    rearrange(&mut listing, |view| view.sort = Sort::Name);
    listing.upsert(entry("c", 0));
    assert_eq!(names(&listing), "fedcba");
    assert_eq!((listing.total(), listing.len()), (6, 6));
}

#[test]
fn filters_apply_to_rows_that_are_added_later() {
    let mut listing = listing(&[("ax", 1), ("bx", 0), ("cy", 0)]);
    rearrange(&mut listing, |view| view.filter = Filter::new("x"));
    assert_eq!(names(&listing), "bxax");
    listing.upsert(entry("dx", 0));
    listing.upsert(entry("ey", 0));
    assert_eq!(names(&listing), "bxdxax");
    rearrange(&mut listing, |view| view.blocked_only = !view.blocked_only);
    assert_eq!(names(&listing), "bxdx");
    listing.upsert(entry("bx", 5));
    assert_eq!(names(&listing), "dx");
    rearrange(&mut listing, |view| view.filter = Filter::default());
    rearrange(&mut listing, |view| view.blocked_only = !view.blocked_only);
    assert_eq!(listing.len(), 5);
}

#[test]
fn the_selection_follows_its_row_once_the_user_has_chosen_it() {
    let mut listing = listing(&[("a", 1), ("b", 2), ("c", 3)]);
    listing.upsert(entry("0", 0));
    assert_eq!(selected(&listing), "0", "before, it stays at the top");
    listing.remove("0");
    assert_eq!(selected(&listing), "a");
    listing.upsert(entry("0", 0));
    listing.choose();
    listing.upsert(entry("!", 0));
    assert_eq!((selected(&listing), listing.at()), ("0", 1));
    listing.remove("!");
    step(&mut listing, 2);
    assert_eq!(selected(&listing), "b");
    listing.upsert(entry("9", 0));
    listing.upsert(entry("b", 9));
    assert_eq!((selected(&listing), listing.at()), ("b", 4));
    listing.remove("b");
    assert_eq!((selected(&listing), listing.chosen()), ("0", None), "nobody has chosen the row in its place");
    step(&mut listing, -100);
    assert_eq!(selected(&listing), "0");
    step(&mut listing, 100);
    assert_eq!(selected(&listing), "c");
    listing.go_to_top();
    listing.upsert(entry("!", 0));
    assert_eq!(selected(&listing), "!");
    listing.replace([]);
    assert!(listing.selected().is_none());
}

#[test]
fn another_order_or_filter_compares_no_names() {
    let names: Vec<(String, u32)> = (0..500_u32).map(|at| (format!("pod-{at:03}"), at * 7 % 13)).collect();
    let rows: Vec<(&str, u32)> = names.iter().map(|(name, risk)| (name.as_str(), *risk)).collect();
    let mut listing = listing(&rows);
    let before = NAMES_COMPARED.get();
    rearrange(&mut listing, |view| view.sort = Sort::Name);
    rearrange(&mut listing, |view| view.reversed = true);
    rearrange(&mut listing, |view| view.filter = Filter::new("pod"));
    rearrange(&mut listing, |view| view.sort = Sort::Risk);
    assert_eq!(NAMES_COMPARED.get(), before);
    let shown: Vec<&TestRow> = (0..listing.len()).filter_map(|index| listing.nth(index)).collect();
    assert!(shown.is_sorted_by(|one, other| (other.1, &other.0) < (one.1, &one.0)), "{shown:?}");
}

#[test]
fn the_window_scrolls_no_more_than_necessary() {
    let letters: Vec<(String, u32)> =
        (0..10).map(|i| (char::from(b'a' + i).to_string(), u32::from(i))).collect();
    let letters: Vec<(&str, u32)> = letters.iter().map(|(name, risk)| (name.as_str(), *risk)).collect();
    let mut listing = listing(&letters);
    for (index, window) in [(2, 0..4), (3, 0..4), (4, 1..5), (2, 1..5), (9, 6..10), (0, 0..4)] {
        listing.select(index);
        listing.fit(4);
        assert_eq!(listing.window(4), window, "{index}");
    }
    listing.select(9);
    listing.fit(4);
    assert_eq!(listing.window(20), 0..10);
    assert_eq!(listing.window(0), 10..10);
    rearrange(&mut listing, |view| view.filter = Filter::new("a"));
    assert_eq!(listing.window(4), 0..1);
}

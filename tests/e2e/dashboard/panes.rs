//! The panes of the dashboard in a terminal, and what it says of a drain at the end.

use nm_tests::skip::has_kubectl;
use nm_tests::terminal::keys::ESCAPE;

use crate::dashboard::setup::{Blocked, quit};

/// The lines of the pane that are shown, and all of them, as its title has them.
fn position(screen: &vt100::Screen, pane: &str) -> Option<(usize, usize, usize)> {
    let shown = screen.contents();
    let title = shown.lines().find_map(|line| line.split_once(&format!(" {pane} ")).map(|(_, rest)| rest))?;
    let (range, rest) = title.split_once(" of ")?;
    let (first, last) = range.split_once('-')?;
    let all = rest.split_whitespace().next()?;
    Some((first.parse().ok()?, last.parse().ok()?, all.parse().ok()?))
}

#[tokio::test(flavor = "multi_thread")]
async fn panes_have_everything_and_the_end_says_what_was_refused() {
    let blocked = Blocked::start("panes").await;
    let terminal = blocked.dashboard(&[], &[]).await;
    terminal.press("v");
    terminal.until_shown("Reason: DisruptionBudget").await;
    // The reconciler tries now and then whether the budget allows it.
    terminal.until_shown("(refused").await;
    // The first cause is read once the node is open.
    terminal.until_shown("minAvailable").await;
    terminal.resize(20, 45);
    let starts =
        |screen: &vt100::Screen| matches!(position(screen, "DETAILS"), Some((1, last, all)) if last < all);
    terminal.until("the first lines", starts).await;
    terminal.press("\t");
    terminal.until_shown("[j k] scroll").await;
    terminal.press("j");
    terminal.until("a line more", |screen| matches!(position(screen, "DETAILS"), Some((2, ..)))).await;
    terminal.press("G");
    let ends =
        |screen: &vt100::Screen| matches!(position(screen, "DETAILS"), Some((_, last, all)) if last == all);
    terminal.until("the last lines", ends).await;
    let last = terminal.until_shown("has 1 currently").await;
    assert!(!last.contains("Let the"), "what to do comes first: {last}");
    terminal.press("g");
    terminal.until("the first lines again", starts).await;
    terminal.press("v");
    terminal.until("no pane", |screen| !screen.contents().contains("DETAILS")).await;
    terminal.resize(30, 140);
    if has_kubectl() {
        terminal.press("L");
        terminal.until_shown("--previous --ignore-errors").await;
        terminal.press(ESCAPE);
        terminal.until_shown("NAMESPACE/POD").await;
    }

    blocked.workload.delete_budget("cart").await;
    terminal.until_shown("gone in").await;
    let left = quit(terminal).await.until_shown("refused)").await;
    let refused = format!("blocked by: PDB {}/cart (1 pod, ", blocked.workload.namespace());
    assert!(left.contains(&refused), "{left}");
    assert!(left.contains(&format!("node/{}: ", blocked.node)), "{left}");
}

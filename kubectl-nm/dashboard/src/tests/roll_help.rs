//! The help of a roll's dashboard.

use crossterm::event::KeyCode;

use crate::config::appearance::Appearance;
use crate::tests::roll::{press, text, working};

#[test]
fn the_help_explains_every_sign_of_the_table_as_the_terminal_shows_it() {
    let unicode =
        ["⊘ blocked or halted", "? to confirm", "↓ under way", "↺ returning", "○ planned", "✓ done"];
    let ascii = ["! blocked or halted", "? to confirm", "~ under way", "< returning", ". planned", "+ done"];
    for (is_ascii, signs, removed) in [(false, unicode, "· removed"), (true, ascii, "- removed")] {
        let mut model = working(80, 40);
        model.appearance = Appearance { ascii: is_ascii, ..model.appearance };
        press(&mut model, KeyCode::Char('?'));
        let help = text(&model);
        for sign in signs.into_iter().chain([removed]) {
            assert!(help.contains(sign), "{sign}: {help}");
        }
    }
}

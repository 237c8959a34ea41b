//! Which key has which action: that of the table, unless the configuration has another one.

use std::collections::BTreeMap;

use crossterm::event::KeyEvent;

use crate::config::action_table::{ACTIONS, Action};
use crate::config::key_name::key_name;

/// Keys that no other action can have.
pub(crate) const FIXED: [(&str, Action); 2] = [("Ctrl-C", Action::Quit), ("Ctrl-Z", Action::Suspend)];

/// The keys of each action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMap(BTreeMap<&'static str, Vec<String>>);

impl Default for KeyMap {
    fn default() -> Self {
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        Self(ACTIONS.iter().map(|entry| (entry.name, keys(entry.keys))).collect())
    }
}

impl KeyMap {
    /// Gives an action these keys instead of its own, beside a fixed one. An action that had one of them loses it.
    pub(crate) fn assign(&mut self, action: Action, mut keys: Vec<String>) {
        let fixed = FIXED.iter().filter(|(_, owner)| *owner == action).map(|(key, _)| (*key).to_owned());
        let missing: Vec<String> = fixed.filter(|key| !keys.contains(key)).collect();
        keys.extend(missing);
        for others in self.0.values_mut() {
            others.retain(|key| !keys.contains(key));
        }
        self.0.insert(action.entry().name, keys);
    }

    pub(crate) fn action(&self, key: KeyEvent) -> Option<Action> {
        let name = key_name(key)?;
        ACTIONS.iter().map(|entry| entry.action).find(|action| self.keys(*action).contains(&name))
    }

    pub fn keys(&self, action: Action) -> &[String] {
        self.0.get(action.entry().name).map_or(&[], Vec::as_slice)
    }

    /// The shortest of its keys; without a key, its name.
    pub(crate) fn shortest(&self, action: Action) -> String {
        let keys = self.keys(action).iter();
        keys.min_by_key(|key| key.len()).cloned().unwrap_or_else(|| action.entry().name.to_owned())
    }

    /// The same in brackets, for sentences.
    pub(crate) fn hint(&self, action: Action) -> String {
        format!("[{}]", self.shortest(action))
    }

    /// The keys that go down and up.
    pub(crate) fn up_and_down(&self) -> String {
        format!("{} {}", self.shortest(Action::Down), self.shortest(Action::Up))
    }

    /// The keys that lead to the first and the last line.
    pub(crate) fn ends(&self) -> String {
        format!("{} {}", self.shortest(Action::Top), self.shortest(Action::Bottom))
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyModifiers};

    use super::*;

    #[test]
    fn an_assigned_key_is_taken_from_the_action_that_had_it() {
        let mut map = KeyMap::default();
        let pressed = |map: &KeyMap, c| map.action(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
        assert_eq!(
            (pressed(&map, 'l'), pressed(&map, 'L')),
            (Some(Action::Logs), Some(Action::PreviousLogs))
        );
        map.assign(Action::Logs, vec![String::from("L")]);
        assert_eq!((pressed(&map, 'l'), pressed(&map, 'L')), (None, Some(Action::Logs)));
        assert_eq!(map.keys(Action::PreviousLogs), &[] as &[String]);
    }
}

//! What the dashboard is told when it begins.
//!
//! The run loop makes a `Model` of it (`Model::new(Options)`), hands every message to `update`, carries out the effects,
//! and draws with `view::draw`. `Model::opened` names the node whose feed is to be open at the beginning.

use jiff::Timestamp;

/// What the dashboard is told when it begins.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The nodes that were named: one opens its own view, several narrow the fleet to them, none is all.
    pub(crate) nodes: Vec<String>,
    /// The name of the kubeconfig's context, for the header.
    pub(crate) context: String,
    /// How kubectl is called for this cluster, in commands to paste: `kubectl`, with the connection flags that were
    /// given to us (`kubectl --context prod`), quoted for a shell.
    pub(crate) kubectl: String,
    /// Whether nothing may be started or stopped.
    pub(crate) readonly: bool,
    /// The colours.
    pub(crate) theme: ThemeName,
    /// Whether to draw with ASCII characters alone.
    pub(crate) ascii: bool,
    /// Columns and rows of the terminal; later sizes come as messages.
    pub(crate) size: (u16, u16),
    /// The time; later times come as messages.
    pub(crate) now: Timestamp,
}

/// A choice of colours. None of them says anything that the words do not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ThemeName {
    /// For a dark background.
    #[default]
    Dark,
    /// For a light background.
    Light,
    /// Blue and orange instead of green and red.
    ColourBlind,
    /// Without colours: bold, underlined and reversed alone.
    Mono,
}

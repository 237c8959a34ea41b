//! How the dashboards look: the flags for it, and what follows from them on this terminal.

use clap::Args;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::is_unicode_locale;

/// A colour theme. Colours never carry information that words do not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ThemeName {
    /// For a dark background.
    #[default]
    Dark,
    /// For a light background.
    Light,
    /// Blue and orange instead of green and red.
    ColourBlind,
    /// No colours: bold, dim and reverse video only.
    Mono,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Appearance {
    pub(crate) theme: ThemeName,
    pub(crate) ascii: bool,
}

/// The flags for the appearance of the dashboards.
#[derive(Args, Debug, Default)]
pub struct AppearanceFlags {
    // A doc comment would have to put backticks around the variable.
    #[arg(
        help = "Colours of the dashboard; the default is that of the configuration, or else dark. Without colours \
                  (--color never, NO_COLOR) the theme is mono"
    )]
    #[arg(long, value_name = "THEME", help_heading = "Dashboard")]
    theme: Option<ThemeName>,

    // A doc comment would have to put backticks around the variable.
    #[arg(
        help = "Draw the dashboard with ASCII characters only; the default in a locale without UTF-8, such as LC_ALL=C"
    )]
    #[arg(long, help_heading = "Dashboard")]
    ascii: bool,
}

impl AppearanceFlags {
    /// The appearance on the terminal of this output. The flags go before the configuration, which is given.
    pub fn on(&self, out: &Output, theme: Option<ThemeName>, ascii: Option<bool>) -> Appearance {
        let theme = self.theme.or(theme).unwrap_or_default();
        let is_unicode = is_unicode_locale(|name| std::env::var(name).ok());
        Appearance {
            theme: if out.is_coloured() { theme } else { ThemeName::Mono },
            ascii: self.ascii || ascii.unwrap_or(!is_unicode),
        }
    }
}

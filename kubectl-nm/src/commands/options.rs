//! `kubectl nm options`: prints the flags that every command takes, as `kubectl options` does.

use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::terminal::output::Output;

pub(crate) const OPTIONS_EXAMPLES: &str = "\
Examples:
  # Print the flags that every command takes
  kubectl nm options";

pub(crate) const OPTIONS_EXIT_CODES: &str = "Exit codes: 0 printed, 1 failed, 2 usage error.";

const PAGE: &str = "\
Every command takes these flags, before or after its name.

{all-args}
";

/// Prints the flags of `program` that all of its commands take.
pub(crate) fn run(program: &clap::Command, out: &mut Output) -> Result<Exit, Error> {
    let flags = program.get_arguments().filter(|flag| flag.is_global_set()).cloned();
    let page = clap::Command::new("options")
        .args(flags.map(|flag| flag.global(false).hide_short_help(false)))
        .disable_help_flag(true)
        .max_term_width(110)
        .help_template(PAGE);
    out.text(&page.clone().render_help().to_string())?;
    Ok(Exit::Done)
}

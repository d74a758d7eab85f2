//! `docs/reference/flags.md`, made from the command line's definition. The test compares it, and writes it where `UPDATE_REFERENCE` is
//! set.

use std::fmt::Write as _;
use std::path::Path;

use super::{EXIT_CODES, command};

const PAGE: &str = "../../docs/reference/flags.md";
const VARIABLE: &str = "UPDATE_REFERENCE";

fn page() -> String {
    let mut server = command();
    server.build();
    let mut page = String::from(
        "# Flags, commands and exit codes\n\nMade from the code: `UPDATE_REFERENCE=1 cargo test -p control-plane --lib cli::reference` writes it, and the test fails while it is\nnot up to date. Names, headings and meanings are upstream's where upstream has the flag.\n",
    );
    let mut headings: Vec<&str> = Vec::new();
    for flag in server.get_arguments() {
        let heading = flag.get_help_heading().unwrap_or("Flags");
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for heading in headings {
        let flags = server.get_arguments();
        let flags = flags.filter(|flag| flag.get_help_heading().unwrap_or("Flags") == heading);
        table(&mut page, heading, flags);
    }
    page.push_str(
        "\n## Commands\n\n`kube-apiserver COMMAND --help` says more. `check` takes the server's flags.\n",
    );
    for command in server.get_subcommands() {
        let name = command.get_name();
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = write!(page, "\n### {name}\n\n{about}.\n");
        if name != "check" {
            let flags = command.get_arguments().filter(|flag| flag.get_id() != "help");
            rows(&mut page, flags);
        }
    }
    page.push_str("\n## Exit codes\n\n| code | meaning |\n|---|---|\n");
    for (code, meaning) in EXIT_CODES {
        let _ = writeln!(page, "| {code} | {meaning} |");
    }
    page
}

fn table<'a>(page: &mut String, heading: &str, flags: impl Iterator<Item = &'a clap::Arg>) {
    let _ = write!(page, "\n## {heading}\n");
    rows(page, flags);
}

fn rows<'a>(page: &mut String, flags: impl Iterator<Item = &'a clap::Arg>) {
    let mut flags = flags.peekable();
    if flags.peek().is_none() {
        return;
    }
    page.push_str("\n| flag | default | meaning |\n|---|---|---|\n");
    for flag in flags {
        let values = flag.get_value_names().unwrap_or_default();
        let takes = flag.get_action().takes_values();
        let value = values
            .first()
            .filter(|_| takes)
            .map_or(String::new(), |value| format!(" {value}"));
        let name = flag
            .get_long()
            .map_or_else(String::new, |long| format!("--{long}"));
        let defaults: Vec<String> = flag
            .get_default_values()
            .iter()
            .filter(|_| takes)
            .map(|value| format!("`{}`", value.to_string_lossy()))
            .collect();
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ").replace('<', "&lt;");
        let shown = cell(format!("{name}{value}").trim());
        let _ = writeln!(page, "| `{shown}` | {} | {} |", defaults.join(", "), cell(&help));
    }
}

#[test]
fn the_page_of_flags_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = page();
    if std::env::var_os(VARIABLE).is_some() {
        std::fs::write(&file, &page).expect("it is written");
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == page,
        "{PAGE} is not up to date: run this test with {VARIABLE}=1"
    );
}

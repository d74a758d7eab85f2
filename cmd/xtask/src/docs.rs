//! The documents: links and anchors are always checked, and the book is built where `mdbook` is installed.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::say;

/// The contents of the book.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Checks the links, then builds the book.
pub(crate) fn run(root: &Path, files: &[String]) -> Result<(), String> {
    let mut faults = Vec::new();
    check(root, files, &mut faults);
    if !faults.is_empty() {
        faults.sort();
        return Err(format!("docs:\n  {}", faults.join("\n  ")));
    }
    match Command::new("mdbook").arg("build").current_dir(root).status() {
        Ok(status) if status.success() => {
            say("the book is in target/book");
            Ok(())
        }
        Ok(status) => Err(format!("mdbook build: {status}")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            say(
                "all links hold. There is no `mdbook` on the PATH, so the book is not built: cargo install mdbook",
            );
            Ok(())
        }
        Err(error) => Err(format!("cannot run mdbook: {error}")),
    }
}

/// Finds links to files that are not there, anchors without a heading, and pages that the contents do not name.
pub(crate) fn check(root: &Path, files: &[String], faults: &mut Vec<String>) {
    let pages: HashMap<&str, String> = files
        .iter()
        .filter(|name| is_page(name))
        .filter_map(|name| Some((name.as_str(), std::fs::read_to_string(root.join(name)).ok()?)))
        .collect();
    for (name, text) in &pages {
        let base = Path::new(name).parent().unwrap_or(Path::new(""));
        for link in links(text) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let page = match target {
                "" => (*name).to_string(),
                target => plain(&base.join(target)),
            };
            if !root.join(&page).exists() {
                faults.push(format!("{name}: broken link to {link}"));
                continue;
            }
            let headings = pages.get(page.as_str());
            if !anchor.is_empty()
                && headings.is_some_and(|text| !anchors(text).iter().any(|known| known == anchor))
            {
                faults.push(format!("{name}: no heading for {link}"));
            }
        }
    }
    let Some(summary) = pages.get(SUMMARY) else {
        return;
    };
    let named: Vec<String> = links(summary).iter().map(|link| format!("docs/{link}")).collect();
    for name in pages.keys() {
        if name.starts_with("docs/") && *name != SUMMARY && !named.iter().any(|known| known == name) {
            faults.push(format!("{SUMMARY}: {name} is not in it"));
        }
    }
}

fn is_page(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|end| end == "md")
}

/// A path without `..` and `.`.
fn plain(path: &Path) -> String {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out.to_string_lossy().into_owned()
}

/// The lines that are not in code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The targets of links within the repository.
fn links(text: &str) -> Vec<&str> {
    let targets = prose(text).flat_map(|line| line.split("](").skip(1));
    let targets = targets.filter_map(|part| Some(part.split_once(')')?.0));
    targets
        .filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
        .collect()
}

/// The anchors of the headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor = kept.collect::<String>().replace(' ', "-");
        let again = (1..).map(|number| format!("{anchor}-{number}"));
        let mut names = std::iter::once(anchor.clone()).chain(again);
        out.extend(names.find(|name| !out.contains(name)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code() {
        let text = "[a](x.md) [b](https://e.com) [c](#d) [e](y.md#z)\n```\n[f](no.md)\n```\n";
        assert_eq!(links(text), ["x.md", "#d", "y.md#z"]);
    }

    #[test]
    fn anchors_are_those_of_headings() {
        let text = "# A (b), c\n```sh\n# no\n```\n## `x` y-z\n## Same\n## Same\n";
        assert_eq!(anchors(text), ["a-b-c", "x-y-z", "same", "same-1"]);
    }

    #[test]
    fn paths_are_made_plain() {
        assert_eq!(plain(Path::new("docs/guides/../a.md")), "docs/a.md");
    }
}

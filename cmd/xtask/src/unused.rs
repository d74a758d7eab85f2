//! Dependencies that a crate declares and does not use: each name has to occur in its sources, as a path or an import.

use std::path::Path;

use serde_json::Value;

/// Names the unused dependencies of a package, of `cargo metadata`. `files` are the repository's.
pub(crate) fn check(root: &Path, package: &Value, files: &[String], errors: &mut Vec<String>) {
    let name = package["name"].as_str().unwrap_or_default();
    let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
    let Some(folder) = manifest
        .parent()
        .and_then(|folder| folder.strip_prefix(root).ok())
    else {
        return;
    };
    let (mut product, mut tests) = (String::new(), String::new());
    for file in files.iter().filter(|file| belongs(root, folder, Path::new(file))) {
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        let within = Path::new(file).strip_prefix(folder).unwrap_or(Path::new(file));
        match within.starts_with("src") || within == Path::new("build.rs") {
            true => product.push_str(&text),
            false => tests.push_str(&text),
        }
    }
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    // Those of one platform may be there for their sources alone.
    for dependency in dependencies.filter(|dependency| dependency["target"].is_null()) {
        let package = dependency["name"].as_str().unwrap_or_default();
        let known_as = dependency["rename"].as_str().unwrap_or(package).replace('-', "_");
        let is_test = dependency["kind"] == "dev";
        if !(occurs(&product, &known_as) || is_test && occurs(&tests, &known_as)) {
            errors.push(format!("{name}: `{package}` is a dependency that nothing uses"));
        }
    }
}

/// Whether a file is a source of the package in this folder, and not of a package below it.
fn belongs(root: &Path, folder: &Path, file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "rs")
        && file
            .ancestors()
            .skip(1)
            .find(|above| root.join(above).join("Cargo.toml").is_file())
            == Some(folder)
}

/// Whether code outside of comments names a crate: `name::`, `use name;` or `use name as`.
fn occurs(text: &str, name: &str) -> bool {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .any(|line| {
            line.match_indices(name).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                let after = &line[at + name.len()..];
                let whole = !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.');
                let import = line.trim_start().starts_with("use ") || line.contains(" use ");
                whole && (after.starts_with("::") || import && after.starts_with([';', ' ', ',']))
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: bool) {
        assert_eq!(occurs(line, "time"), expected, "{line}");
    }

    #[test]
    fn names_of_crates() {
        check("let now = time::now();", true);
        check("#[time::main]", true);
        check("pub use time;", true);
        check("use time as clock;", true);
        check("use machinery::time;", true);
        check("let time = 1;", false);
        check("// time::now is not used", false);
        check("let x = uptime::now();", false);
        check("let x = my_time::now();", false);
    }
}

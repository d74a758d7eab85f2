//! Paths of files within volumes.

use machinery::FieldPath;

use crate::errors::Errors;

/// A relative path without `..`.
pub(crate) fn local_descending_path(errors: &mut Errors, path: &FieldPath<'_>, file: &str) {
    if file.starts_with('/') {
        errors.invalid(path, file, "must be a relative path");
    }
    no_backsteps(errors, path, file);
}

/// A path without `..` as one of its parts.
pub(crate) fn no_backsteps(errors: &mut Errors, path: &FieldPath<'_>, file: &str) {
    if file.split('/').any(|part| part == "..") {
        errors.invalid(path, file, "must not contain '..'");
    }
}

/// A relative path without `..` that does not begin with it either.
pub(crate) fn local_non_reserved_path(errors: &mut Errors, path: &FieldPath<'_>, file: &str) {
    local_descending_path(errors, path, file);
    if file.starts_with("..") && !file.starts_with("../") {
        errors.invalid(path, file, "must not start with '..'");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::check::check_errors;

    #[test]
    fn paths_stay_within_their_volume() {
        #[track_caller]
        fn check(file: &str, descending: &[&str], reserved: &[&str]) {
            let path = FieldPath::new("path");
            let shown = |texts: &[&str]| -> Vec<String> {
                let texts = texts.iter();
                texts
                    .map(|text| format!("path: Invalid value: {file:?}: {text}"))
                    .collect()
            };
            let found = shown(descending);
            let found: Vec<&str> = found.iter().map(String::as_str).collect();
            check_errors(|errors| local_descending_path(errors, &path, file), &found);
            let found = shown(&[descending, reserved].concat());
            let found: Vec<&str> = found.iter().map(String::as_str).collect();
            check_errors(|errors| local_non_reserved_path(errors, &path, file), &found);
        }
        let (relative, up, start) = (
            "must be a relative path",
            "must not contain '..'",
            "must not start with '..'",
        );
        check("", &[], &[]);
        check("a/b..c/...", &[], &[]);
        check("/a", &[relative], &[]);
        check("a/../b", &[up], &[]);
        check("../a", &[up], &[]);
        check("..", &[up], &[start]);
        check("..a", &[], &[start]);
        check("/..", &[relative, up], &[]);
    }
}

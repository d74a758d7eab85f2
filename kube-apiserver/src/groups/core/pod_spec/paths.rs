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

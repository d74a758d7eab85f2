//! The order of version names: `v10`, `v2`, `v1`, `v2beta1`, `v1alpha3`, and other names after those.
//! Mirrors `k8s.io/apimachinery/pkg/version.CompareKubeAwareVersionStrings`.

use std::cmp::Ordering;

/// Stability, major and minor of a name like `v1beta2`.
fn parse(name: &str) -> Option<(u8, u64, u64)> {
    let rest = name.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(digits);
    // Upstream's expression wants the numbers to begin with another digit than zero.
    let number = |text: &str| match text.starts_with('0') {
        true => None,
        false => text.parse::<u64>().ok(),
    };
    let major = number(major)?;
    if rest.is_empty() {
        return Some((2, major, 0));
    }
    let (stability, minor) = if let Some(minor) = rest.strip_prefix("beta") {
        (1, minor)
    } else {
        (0, rest.strip_prefix("alpha")?)
    };
    Some((stability, major, number(minor)?))
}

/// Greater is preferred.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    match (parse(a), parse(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

#[cfg(test)]
mod tests {
    use super::compare;

    #[test]
    fn stable_before_beta_before_alpha_before_the_rest() {
        let mut names = [
            "foo1", "v1alpha2", "v2", "v1beta1", "v10", "bar", "v2beta3", "v01",
        ];
        names.sort_by(|a, b| compare(b, a));
        assert_eq!(
            names,
            [
                "v10", "v2", "v2beta3", "v1beta1", "v1alpha2", "bar", "foo1", "v01"
            ]
        );
    }
}

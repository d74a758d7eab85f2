//! Group versions that are served here, and their order.

/// A group version served by this process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LocalVersion {
    /// The group, empty for core.
    pub group: String,
    /// The version.
    pub version: String,
    /// `groupPriorityMinimum` and `versionPriority` of its APIService.
    pub priority: (i32, i32),
    /// Of a CRD: registered with low priority, removed with the CRD.
    pub custom: bool,
}

/// `groupPriorityMinimum` and `versionPriority` of a custom group.
pub(crate) const CUSTOM_PRIORITY: (i32, i32) = (1000, 100);

/// `groupPriorityMinimum` and `versionPriority` of a built-in group and version; `None` of others. The servers behind say them.
pub type Priorities = fn(&str, &str) -> Option<(i32, i32)>;

/// A version as Kubernetes orders them: stable before beta before alpha, higher numbers first; other names after those,
/// by name. The greater rank comes first.
pub(crate) fn version_rank(version: &str) -> (u8, u32, u32, std::cmp::Reverse<&str>) {
    parse_version(version).map_or((0, 0, 0, std::cmp::Reverse(version)), |(kind, major, minor)| {
        (kind, major, minor, std::cmp::Reverse(""))
    })
}

fn parse_version(version: &str) -> Option<(u8, u32, u32)> {
    let number = |text: &str| -> Option<u32> {
        (!text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
    };
    let rest = version.strip_prefix('v')?;
    let (kind, word) = match rest {
        _ if rest.contains("alpha") => (1, "alpha"),
        _ if rest.contains("beta") => (2, "beta"),
        _ => return Some((3, number(rest)?, 0)),
    };
    let (major, minor) = rest.split_once(word)?;
    Some((kind, number(major)?, number(minor)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_in_order() {
        let expected = [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "v11alpha2",
            "foo1",
            "foo10",
            "v01",
        ];
        let mut versions = expected;
        versions.sort();
        versions.sort_by_key(|v| std::cmp::Reverse(version_rank(v)));
        assert_eq!(versions, expected);
    }
}

//! How the seats of a server are divided among its levels, by their demand and within their bounds.

/// A target below this counts as this, so that levels without demand share what nobody wants. Upstream's `MinTarget`.
const LEAST_TARGET: f64 = 0.001;
/// What sums of floats may differ by.
const TOLERANCE: f64 = 1e-7;

/// What one level wants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    /// Seats that it has in any case.
    pub(crate) least: f64,
    /// Seats that it never has more of.
    pub(crate) most: f64,
    /// Its demand.
    pub(crate) target: f64,
}

impl Claim {
    fn target(&self) -> f64 {
        self.target.max(LEAST_TARGET)
    }

    /// The seats at some fraction of all targets.
    fn at(&self, fraction: f64) -> f64 {
        (fraction * self.target()).min(self.most).max(self.least)
    }
}

/// The seats of each claim and the fraction of their targets that all of them have, as far as their bounds allow. Their sum is `seats`.
/// `None` when the bounds do not allow that sum.
pub(crate) fn divide(seats: f64, claims: &[Claim]) -> Option<(Vec<f64>, f64)> {
    let total = |fraction: f64| claims.iter().map(|claim| claim.at(fraction)).sum::<f64>();
    let least: f64 = claims.iter().map(|claim| claim.least).sum();
    let most: f64 = claims.iter().map(|claim| claim.most).sum();
    let orderly = claims
        .iter()
        .all(|claim| claim.least >= 0.0 && claim.least <= claim.most);
    if !orderly || least > seats + TOLERANCE || most < seats - TOLERANCE {
        return None;
    }
    // The sum rises with the fraction, in straight lines between the fractions at which a claim comes to one of its bounds. The two
    // neighbours that enclose the sum are searched, and the line between them gives the rest.
    let bends = claims
        .iter()
        .flat_map(|claim| [claim.least / claim.target(), claim.most / claim.target()]);
    let mut bends: Vec<f64> = bends.collect();
    bends.sort_by(f64::total_cmp);
    let above = bends.partition_point(|bend| total(*bend) < seats - TOLERANCE);
    let fraction = match (
        above.checked_sub(1).and_then(|below| bends.get(below)),
        bends.get(above),
    ) {
        (Some(low), Some(high)) => {
            let (from, to) = (total(*low), total(*high));
            low + (high - low) * (seats - from) / (to - from)
        }
        (Some(only), None) | (None, Some(only)) => *only,
        (None, None) => 0.0,
    };
    Some((claims.iter().map(|claim| claim.at(fraction)).collect(), fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(seats: f64, claims: &[(f64, f64, f64)], expected: Option<(&[f64], f64)>) {
        let claims = claims
            .iter()
            .map(|(least, most, target)| Claim {
                least: *least,
                most: *most,
                target: *target,
            })
            .collect::<Vec<_>>();
        let found = divide(seats, &claims);
        match (found, expected) {
            (None, None) => {}
            (Some((found, fraction)), Some((expected, expected_fraction))) => {
                let same = found.len() == expected.len()
                    && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6);
                assert!(same, "{found:?} is not {expected:?}");
                assert!((fraction - expected_fraction).abs() < 1e-6, "{fraction}");
            }
            (found, expected) => panic!("{found:?} is not {expected:?}"),
        }
    }

    #[test]
    fn seats_are_divided_by_demand_within_bounds() {
        check(0.0, &[], Some((&[], 0.0)));
        // No bound matters.
        check(
            100.0,
            &[(0.0, 100.0, 10.0), (0.0, 100.0, 30.0)],
            Some((&[25.0, 75.0], 2.5)),
        );
        // One has its least, the other the rest.
        check(
            100.0,
            &[(50.0, 200.0, 50.0), (0.0, 200.0, 100.0)],
            Some((&[50.0, 50.0], 0.5)),
        );
        // One has its most.
        check(
            100.0,
            &[(0.0, 20.0, 50.0), (0.0, 200.0, 50.0)],
            Some((&[20.0, 80.0], 1.6)),
        );
        // Without a demand all have the same.
        check(
            30.0,
            &[(0.0, 100.0, 0.0), (0.0, 100.0, 0.0)],
            Some((&[15.0, 15.0], 15_000.0)),
        );
        // All have their least, or their most.
        check(
            30.0,
            &[(10.0, 30.0, 10.0), (20.0, 30.0, 20.0)],
            Some((&[10.0, 20.0], 1.0)),
        );
        check(
            60.0,
            &[(10.0, 30.0, 10.0), (20.0, 30.0, 20.0)],
            Some((&[30.0, 30.0], 3.0)),
        );
        // It cannot be.
        check(29.0, &[(10.0, 30.0, 10.0), (20.0, 30.0, 20.0)], None);
        check(61.0, &[(10.0, 30.0, 10.0), (20.0, 30.0, 20.0)], None);
        check(10.0, &[(10.0, 5.0, 10.0)], None);
        check(10.0, &[(-1.0, 50.0, 10.0)], None);
    }

    #[test]
    fn sums_are_kept() {
        for seed in 1..500_u32 {
            let number = |n: u32| f64::from(seed.wrapping_mul(2_654_435_761).rotate_left(n) % 100);
            let claims: Vec<Claim> = (0..7)
                .map(|n| Claim {
                    least: number(n),
                    most: number(n) + number(n + 9),
                    target: number(n) + number(n + 17),
                })
                .collect();
            let least: f64 = claims.iter().map(|claim| claim.least).sum();
            let most: f64 = claims.iter().map(|claim| claim.most).sum();
            let seats = (least + most) / 2.0;
            let (found, fraction) = divide(seats, &claims).expect("bounds that allow the sum");
            assert!((found.iter().sum::<f64>() - seats).abs() < 1e-4, "{seed}");
            for (claim, seats) in claims.iter().zip(&found) {
                let free = (seats - fraction * claim.target()).abs() < 1e-6;
                assert!(free || *seats == claim.least || *seats == claim.most, "{seed}");
            }
        }
    }
}

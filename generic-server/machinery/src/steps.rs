//! Counted work, by which tests show how the cost of a pass grows with its input. Outside of tests nothing is counted.

/// Notes that a pass did `steps` more elementary steps: visits, moves or comparisons of one element.
#[inline(always)]
pub(crate) fn count(steps: usize) {
    #[cfg(test)]
    counter::STEPS.with(|counted| counted.set(counted.get() + steps));
    #[cfg(not(test))]
    let _ = steps;
}

#[cfg(test)]
mod counter {
    use std::cell::Cell;

    thread_local! {
        pub(super) static STEPS: Cell<usize> = const { Cell::new(0) };
    }
}

/// The steps that `work` takes on this thread.
#[cfg(test)]
pub(crate) fn of<T>(work: impl FnOnce() -> T) -> usize {
    let before = counter::STEPS.with(std::cell::Cell::get);
    work();
    counter::STEPS.with(std::cell::Cell::get) - before
}

/// Checks that a pass over an input of twice the size takes about twice the steps: at most what n log n allows. `work` prepares
/// an input of a size, and returns the code to be measured.
#[cfg(test)]
#[track_caller]
pub(crate) fn check_growth<W: FnOnce()>(size: usize, work: impl Fn(usize) -> W) {
    let (one, two) = (of(work(size)), of(work(2 * size)));
    assert!(one > 0, "no steps are counted");
    assert!(
        two * 10 <= one * 24,
        "{one} steps for {size} elements, {two} for twice as many"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_growth_are_distinguished() {
        check_growth(100, |size| move || (0..size).for_each(|_| count(1)));
        let square = || check_growth(100, |size| move || (0..size).for_each(|_| count(size)));
        assert!(std::panic::catch_unwind(square).is_err());
    }
}

//! Connections to nodes: bounded in all and for each user, since each takes a descriptor for as long as its stream lasts.

use std::collections::HashMap;
use std::sync::Arc;

use machinery::ApiError;
use parking_lot::Mutex;

/// The connections that there may be.
#[derive(Debug)]
pub(super) struct Seats {
    limit: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by: HashMap<Arc<str>, usize>,
}

/// The right to one connection, until dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    user: Arc<str>,
}

impl Seats {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Seats {
            limit,
            taken: Mutex::default(),
        })
    }

    /// One for a user, who has half of them at most.
    ///
    /// # Errors
    /// 429 when there is none.
    pub(super) fn take(self: &Arc<Self>, user: &str) -> Result<Arc<Seat>, ApiError> {
        let mut taken = self.taken.lock();
        let of_user = taken.by.get(user).copied().unwrap_or_default();
        if taken.all >= self.limit || of_user >= self.limit.div_ceil(2) {
            let text = "too many connections to nodes, please try again later";
            return Err(ApiError::too_many_requests(text, 1));
        }
        taken.all += 1;
        let user: Arc<str> = user.into();
        *taken.by.entry(user.clone()).or_default() += 1;
        Ok(Arc::new(Seat {
            seats: self.clone(),
            user,
        }))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock();
        taken.all -= 1;
        if let Some(of_user) = taken.by.get_mut(&self.user) {
            *of_user -= 1;
            if *of_user == 0 {
                taken.by.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_them_are_left_to_others() {
        let seats = Seats::new(5);
        let mut all: Vec<_> = (0..3).map(|_| seats.take("a").expect("a seat")).collect();
        assert_eq!(seats.take("a").expect_err("half").code(), 429);
        all.extend((0..2).map(|_| seats.take("b").expect("a seat")));
        assert_eq!(seats.take("c").expect_err("none").code(), 429);
        all.remove(0);
        all.push(seats.take("c").expect("a seat"));
        all.clear();
        let taken = seats.taken.lock();
        assert!(taken.all == 0 && taken.by.is_empty());
    }
}

//! Shuffle sharding: which queues of a level a flow may use.
//!
//! A flow's hash deals it a hand of different queues out of all of them, the same on every server and the same as upstream's
//! (`k8s.io/apiserver/pkg/util/shufflesharding`), so that flows that share one queue with an abusive flow seldom share its whole hand.

/// The most cards of a hand: upstream uses no more than 60 bits of a hash, which are used up by 15 cards out of 16.
pub(crate) const MOST_CARDS: usize = 15;

/// A hand: different indices of queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hand {
    cards: [u32; MOST_CARDS],
    size: usize,
}

impl Hand {
    /// The cards in the order in which they were dealt.
    pub(crate) fn cards(&self) -> &[u32] {
        &self.cards[..self.size]
    }
}

/// Deals `size` cards out of `deck` by a hash. A size past the deck or past [`MOST_CARDS`] is cut, and a hand has one card at least.
pub(crate) fn deal(hash: u64, deck: u32, size: usize) -> Hand {
    let deck = deck.max(1);
    let most = usize::try_from(deck).unwrap_or(usize::MAX).min(MOST_CARDS);
    let mut hand = Hand {
        cards: [0; MOST_CARDS],
        size: size.clamp(1, most),
    };
    // A digit for each card, in a system of mixed radices: the position of the card among those that are left.
    let mut rest = hash;
    let mut left = u64::from(deck);
    let mut digits = [0_u32; MOST_CARDS];
    for at in 0..hand.size {
        // The remainder is below the size of the deck.
        digits[at] = u32::try_from(rest % left).unwrap_or_default();
        rest /= left;
        left -= 1;
        // From a position among those that were left to one of the whole deck: the cards dealt before are counted back in.
        let mut card = digits[at];
        for before in digits[..at].iter().rev() {
            card += u32::from(card >= *before);
        }
        hand.cards[at] = card;
    }
    hand
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_are_those_of_upstream() {
        #[track_caller]
        fn check(hash: u64, deck: u32, size: usize, expected: &[u32]) {
            assert_eq!(deal(hash, deck, size).cards(), expected, "{hash} {deck} {size}");
        }
        check(0, 1, 1, &[0]);
        check(0, 128, 4, &[0, 1, 2, 3]);
        check(u64::MAX, 1, 1, &[0]);
        // 0xffff_ffff_ffff_ffff in radices 128, 127, 126, 125: remainders 127, 65, 82, 48.
        check(u64::MAX, 128, 4, &digits(u64::MAX, &[128, 127, 126, 125]));
        check(8238791057607451177, 128, 1, &[41]);
        check(5, 3, 3, &[2, 1, 0]);
        // Sizes that do not fit are cut.
        check(7, 2, 9, &[1, 0]);
        check(0, 0, 0, &[0]);
    }

    /// The definition, done slowly: the cards that are left are a list.
    fn digits(mut hash: u64, radices: &[u64]) -> Vec<u32> {
        let mut left: Vec<u32> = (0..u32::try_from(radices[0]).unwrap()).collect();
        let mut hand = Vec::new();
        for radix in radices {
            hand.push(left.remove(usize::try_from(hash % radix).unwrap()));
            hash /= radix;
        }
        hand
    }

    #[test]
    fn hands_have_no_card_twice() {
        for seed in 0..2_000_u64 {
            let hash = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let hand = deal(hash, 64, 6);
            assert_eq!(hand.cards(), digits(hash, &[64, 63, 62, 61, 60, 59]), "{hash}");
            let mut cards = hand.cards().to_vec();
            cards.sort_unstable();
            cards.dedup();
            assert_eq!(cards.len(), 6);
        }
    }

    #[test]
    fn hands_have_a_bound() {
        let full = deal(u64::MAX, 16, MOST_CARDS);
        assert_eq!(full.cards().len(), MOST_CARDS);
        assert_eq!(deal(u64::MAX, 1 << 20, MOST_CARDS + 1).cards().len(), MOST_CARDS);
    }
}

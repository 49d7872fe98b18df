//! Credit, in bytes, for data that is sent before its sender knows of a receive for it. The sender of the data keeps an
//! [`Allowance`], and the receiver a [`Grant`]. Packets carry the total that was granted since the first contact,
//! modulo 2^32, and not the increase. So the latest packet is enough to know the credit, even if an earlier one was
//! lost.
//!
//! There is one [`Allowance`] and one [`Grant`] for each peer, and all protocols of the stack use them. Each protocol
//! defines the price of its packets as a number of bytes that the sender and the receiver compute in the same way. The
//! price covers the memory that the receiver may have to keep for the packet; a packet that leaves nothing there costs
//! nothing.
//! * The sender's protocol compares the price with [`PeerState::credit`], sends the packet, and then takes the price
//!   from the allowance ([`PeerState::spend`]). If the credit is too small, the protocol returns [`Turn::NoCredit`].
//!   The link asks the peer for credit, and gives each protocol with a queue another turn when credit arrives.
//! * The receiver's protocol takes the price from the grant when the packet arrives ([`Link::charge`]). If it keeps the
//!   data for a later receive, it also counts the price against the budget of the link ([`Link::hold`]) until it frees
//!   the data ([`Link::release`]).
//!
//! So a protocol can use up the credit of the others. They wait until the receiver grants more.
//!
//! [`PeerState::credit`]: super::PeerState::credit
//! [`PeerState::spend`]: super::PeerState::spend
//! [`Turn::NoCredit`]: super::Turn::NoCredit
//! [`Link::charge`]: super::Link::charge
//! [`Link::hold`]: super::Link::hold
//! [`Link::release`]: super::Link::release

/// The credit that a peer has granted to this side, for data to the peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Allowance {
    /// The total that the peer has granted.
    granted: u32,
    /// The total that was spent.
    spent: u32,
    /// True if this side has asked the peer for more credit and the peer has not answered.
    pub(super) is_requested: bool,
    /// True if the peer answered that it has no more credit to give.
    pub(super) is_exhausted: bool,
}

impl Allowance {
    /// Returns the credit that is left.
    #[inline(always)]
    pub(super) fn left(&self) -> u32 {
        self.granted.wrapping_sub(self.spent)
    }

    /// Takes `price` bytes from the credit. The caller has checked that so much is left.
    #[inline(always)]
    pub(super) fn spend(&mut self, price: u32) {
        self.spent = self.spent.wrapping_add(price);
    }

    /// Returns true if `granted`, the total in a packet, differs from the known total.
    #[inline(always)]
    pub(super) fn is_news(&self, granted: u32) -> bool {
        self.granted != granted
    }

    /// Takes the total of granted credit from a packet. `is_exhausted` is true if the packet also says that the peer
    /// has no more to give. Returns true if the packet answers a request for credit, by a grant or by the news that
    /// there is no more.
    pub(super) fn update(&mut self, granted: u32, is_exhausted: bool) -> bool {
        let has_more = self.is_news(granted);
        self.granted = granted;
        let is_answer = has_more || is_exhausted;
        if is_answer {
            self.is_exhausted = !has_more;
            self.is_requested = false;
        }
        is_answer
    }
}

/// The credit that is granted to a peer for its data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Grant {
    /// The total that was granted.
    given: u32,
    /// The value of `given` in the last packet to the peer: the credit that the peer knows of.
    told: u32,
    /// The part of `given` that the peer's data has used up.
    charged: u32,
    /// The most credit that the peer may hold unused.
    window: u32,
    /// True if the peer asked for more credit and waits for an answer.
    pub(super) is_requested: bool,
}

impl Grant {
    /// Returns the total that was granted, which each packet carries.
    #[inline(always)]
    pub(super) fn given(&self) -> u32 {
        self.given
    }

    /// Notes that a packet with the present total was sent.
    #[inline(always)]
    pub(super) fn note_told(&mut self) {
        self.told = self.given;
    }

    /// Returns the credit that the peer holds unused.
    #[inline(always)]
    pub(super) fn unused(&self) -> u32 {
        self.given.wrapping_sub(self.charged)
    }

    /// Returns the credit that the peer knows of and has not used.
    #[inline(always)]
    fn known(&self) -> u32 {
        self.told.wrapping_sub(self.charged)
    }

    /// Takes the price of received data from the credit. Returns false, and takes nothing, if the peer had less credit.
    #[inline(always)]
    #[must_use]
    pub(super) fn charge(&mut self, price: u32) -> bool {
        let is_covered = price <= self.unused();
        if is_covered {
            self.charged = self.charged.wrapping_add(price);
        }
        is_covered
    }

    /// Returns true if it is time to grant more credit, or to inform the peer of credit that was granted already. When
    /// the credit that the peer knows of falls below half of the window, more is granted, and the next packet to the
    /// peer carries the new total. Below a quarter, a packet is sent for the credit alone.
    #[inline(always)]
    pub(super) fn runs_short(&self) -> bool {
        let known = self.known();
        known < self.window / 4 || (known < self.window / 2 && self.given == self.told)
    }

    /// Returns true if a packet should be sent at once for the credit alone: the peer knows of less than a quarter of
    /// the window, and was not told of all granted credit.
    pub(super) fn has_urgent_news(&self) -> bool {
        self.given != self.told && self.known() < self.window / 4
    }

    /// Returns true if the peer holds less than half of the window.
    pub(super) fn is_low(&self) -> bool {
        self.unused() < self.window / 2
    }

    /// Grants the credit that the peer lacks to hold a full window, but at most `room` bytes. Returns the granted
    /// credit. To avoid many small grants, it grants nothing if `room` is less than both `least` bytes and the credit
    /// that the peer lacks.
    pub(super) fn refill(&mut self, room: u32, least: u32) -> u32 {
        let wanted = self.window.saturating_sub(self.unused());
        let given = if room >= least.min(wanted) { wanted.min(room) } else { 0 };
        self.given = self.given.wrapping_add(given);
        given
    }

    /// Sets the most credit that the peer may hold unused.
    pub(super) fn set_window(&mut self, bytes: u32) {
        self.window = bytes;
    }

    /// Doubles the credit that the peer may hold unused, up to `most`.
    pub(super) fn widen(&mut self, most: u32) {
        self.window = self.window.saturating_mul(2).min(most);
    }

    /// Takes back the unused credit of a peer that has ended, and returns its amount.
    pub(super) fn revoke(&mut self) -> u32 {
        let unused = self.unused();
        self.given = self.charged;
        unused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix64;

    /// Compares an [`Allowance`] and a [`Grant`], whose 32-bit totals start near the point where they wrap, with 64-bit
    /// totals that do not wrap.
    #[test]
    fn both_ends_agree_and_nothing_exceeds_its_limit() {
        for seed in 0..200 {
            let mut rng = SplitMix64::new(seed);
            let base = u32::MAX - rng.below(100_000) as u32;
            let mut allowance = Allowance { granted: base, spent: base, ..Allowance::default() };
            let mut grant = Grant { given: base, told: base, charged: base, ..Grant::default() };
            grant.set_window(1 + rng.below(10_000) as u32);
            let (mut given, mut told, mut spent, mut charged) = (0_u64, 0_u64, 0_u64, 0_u64);
            for _ in 0..1_000 {
                match rng.below(5) {
                    0 => {
                        let (room, least) = (rng.below(20_000) as u32, rng.below(5_000) as u32);
                        let lacks = grant.window.saturating_sub(grant.unused());
                        let more = grant.refill(room, least);
                        assert!(more <= room && more <= lacks);
                        assert!(more == lacks.min(room) || (more == 0 && room < least));
                        given += u64::from(more);
                    }
                    1 => {
                        grant.note_told();
                        assert_eq!(allowance.update(grant.given(), false), told != given);
                        told = given;
                    }
                    2 => {
                        let price = rng.below(3_000) as u32;
                        if allowance.left() >= price {
                            allowance.spend(price);
                            spent += u64::from(price);
                        }
                    }
                    3 if charged < spent => {
                        let price = 1 + rng.below(spent - charged) as u32;
                        assert!(grant.charge(price), "spent credit is covered");
                        charged += u64::from(price);
                    }
                    3 => {
                        let before = grant.clone();
                        assert!(!grant.charge(grant.unused() + 1), "more than the credit is not covered");
                        assert_eq!(grant, before);
                    }
                    _ => grant.widen(1 << 20),
                }
                assert_eq!(u64::from(allowance.left()), told - spent);
                assert_eq!(u64::from(grant.unused()), given - charged);
                assert_eq!(u64::from(grant.known()), told - charged);
                assert!(grant.unused() <= grant.window);
                let (half, quarter) = (u64::from(grant.window / 2), u64::from(grant.window / 4));
                assert_eq!(grant.is_low(), given - charged < half);
                let known = told - charged;
                assert_eq!(grant.runs_short(), known < quarter || known < half && told == given);
                assert_eq!(grant.has_urgent_news(), known < quarter && told != given);
            }
            assert_eq!(u64::from(grant.revoke()), given - charged);
            assert_eq!((grant.unused(), grant.given()), (0, base.wrapping_add(charged as u32)));
        }
    }

    #[test]
    fn a_question_is_answered_by_more_or_by_none() {
        let mut allowance = Allowance { is_requested: true, ..Allowance::default() };
        assert!(!allowance.update(0, false) && allowance.is_requested, "no news is no answer");
        assert!(allowance.update(0, true) && !allowance.is_requested && allowance.is_exhausted);
        assert!(allowance.update(10, false) && !allowance.is_exhausted && allowance.left() == 10);
        assert!(allowance.update(20, true) && !allowance.is_exhausted, "some is more than none");
    }
}

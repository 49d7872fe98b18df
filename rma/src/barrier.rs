//! The barrier of fences and of the end of a window: dissemination with 7 partners in a round (Hensgen, Finkel and
//! Manber, "Two algorithms for barrier synchronization", 1988, with radix 8). So up to 8 members need one round.

/// The number of members whose state a round multiplies the known ones by.
const RADIX: u64 = 8;

/// The largest number of partners in a round.
pub(crate) const PARTNERS: usize = RADIX as usize - 1;

/// Returns the number of rounds for `size` members.
pub(crate) fn rounds(size: u32) -> u32 {
    (0..).find(|&round| RADIX.pow(round) >= u64::from(size)).expect("8^11 is more than 2^32")
}

/// Returns the members to which `index` sends in a round, out of `size` members. Each partner occurs in one round.
pub(crate) fn successors(index: u32, size: u32, round: u32) -> impl Iterator<Item = u32> {
    distances(size, round).map(move |distance| ((u64::from(index) + distance) % u64::from(size)) as u32)
}

/// Returns the members from which `index` receives in a round.
pub(crate) fn predecessors(index: u32, size: u32, round: u32) -> impl Iterator<Item = u32> {
    let size_long = u64::from(size);
    distances(size, round).map(move |distance| ((u64::from(index) + size_long - distance) % size_long) as u32)
}

fn distances(size: u32, round: u32) -> impl Iterator<Item = u64> {
    let step = RADIX.pow(round);
    (1..RADIX).map(move |factor| factor * step).take_while(move |&distance| distance < u64::from(size))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_members_know_of_all_after_the_last_round() {
        for size in (1..=70).chain([511, 512, 513]) {
            let mut known: Vec<BTreeSet<u32>> = (0..size).map(|index| BTreeSet::from([index])).collect();
            for round in 0..rounds(size) {
                let before = known.clone();
                for index in 0..size {
                    for from in predecessors(index, size, round) {
                        assert!(successors(from, size, round).any(|to| to == index));
                        known[index as usize].extend(&before[from as usize]);
                    }
                }
            }
            assert!(known.iter().all(|known| known.len() == size as usize), "{size} members");
        }
        assert_eq!([1, 2, 8, 9, 64, 65, 1 << 20, u32::MAX].map(rounds), [0, 1, 1, 2, 2, 3, 7, 11]);
    }

    #[test]
    fn each_partner_occurs_once() {
        for size in [2, 8, 9, 64, 100, 1000] {
            let partners: Vec<_> =
                (0..rounds(size)).flat_map(|round| predecessors(3 % size, size, round)).collect();
            let distinct: BTreeSet<_> = partners.iter().collect();
            assert_eq!((distinct.len(), distinct.contains(&(3 % size))), (partners.len(), false));
        }
    }
}
